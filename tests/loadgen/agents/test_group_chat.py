from __future__ import annotations

from loadgen.agents.group_chat import group_chat
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn

MAIL_AND_FILES = make_task(
    "t",
    Turn(content="look", tool_calls=(make_call("a", "mail", result="3 mails", latency_s=2.0),)),
    Turn(tool_calls=(make_call("b", "files", latency_s=1.0),)),
    Turn(content="done"),
)


def test_the_chair_chooses_before_every_step() -> None:
    recorder, transport = replay_virtually(group_chat, MAIL_AND_FILES)

    assert {call.call_id: call.sent_at for call in recorder.calls} == {
        "t/chair#0": 0.0,
        "t/chair/mail#0": 1.0,
        "t/chair#1": 4.0,
        "t/chair/files#0": 5.0,
        "t/chair#2": 7.0,
        "t/chair/local#0": 8.0,
    }
    assert [reply["content"] for reply in transport.overhead_replies] == ["mail", "files", "local"]


def test_everybody_has_the_whole_transcript_and_only_the_chair_its_choices() -> None:
    _, transport = replay_virtually(group_chat, MAIL_AND_FILES)

    files = transport.prompts["t/chair/files#0"]
    assert [message["role"] for message in files] == ["system", "user", "assistant", "tool"]
    assert [message["content"] for message in files][1:] == ["Do t.", "look", "3 mails"]
    chair = transport.prompts["t/chair#1"]
    assert [message["content"] for message in chair][1:] == ["Do t.", "mail", "look", "3 mails"]


def test_a_speaker_has_its_own_tools() -> None:
    _, transport = replay_virtually(group_chat, MAIL_AND_FILES)

    mail, files, local = (tool.text for tool in MAIL_AND_FILES.tools)
    assert transport.tools["t/chair#0"] == ()
    assert transport.tools["t/chair/mail#0"] == (mail,)
    assert transport.tools["t/chair/files#0"] == (files,)
    assert transport.tools["t/chair/local#0"] == (local,)


def test_what_the_user_says_later_is_heard_by_all() -> None:
    task = make_task(
        "t",
        Turn(tool_calls=(make_call("a", "mail"),)),
        Turn(content="hm", user_message="and now?"),
        Turn(tool_calls=(make_call("b", "mail"),)),
    )

    _, transport = replay_virtually(group_chat, task)

    assert "and now?" in [message["content"] for message in transport.prompts["t/chair/mail#1"]]
