"""Replays recorded exchanges with a real vLLM against this server and says where the answers differ."""
