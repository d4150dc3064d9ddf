from __future__ import annotations

from loadgen.agents.router import router
from tests.loadgen.fakes import make_call, make_task, replay_virtually
from traces.trajectory import Turn

MAIL_FILES_MAIL = make_task(
    "t",
    Turn(content="look", tool_calls=(make_call("a", "mail", latency_s=2.0),)),
    Turn(tool_calls=(make_call("b", "local", latency_s=1.0),)),
    Turn(tool_calls=(make_call("c", "files", result="42 files", latency_s=1.0),)),
    Turn(tool_calls=(make_call("d", "mail", latency_s=0.0),)),
    Turn(content="done"),
)


def test_a_small_call_comes_before_each_change_of_domain() -> None:
    recorder, transport = replay_virtually(router, MAIL_FILES_MAIL)

    assert {call.call_id: call.sent_at for call in recorder.calls} == {
        "t/router#0": 0.0,
        "t/router/mail#0": 1.0,
        "t/router/mail#1": 4.0,
        "t/router#1": 6.0,
        "t/router/files#0": 7.0,
        "t/router#2": 9.0,
        "t/router/mail#2": 10.0,
        "t/router/mail#3": 11.0,
    }
    assert [reply["content"] for reply in transport.overhead_replies] == ["mail", "files", "mail"]


def test_the_classifier_has_the_task_and_its_choices_and_no_tools() -> None:
    _, transport = replay_virtually(router, MAIL_FILES_MAIL)

    assert transport.tools["t/router#2"] == ()
    assert [message["role"] for message in transport.prompts["t/router#2"]] == [
        *("system", "user", "assistant"),
        *("user", "assistant"),
        "user",
    ]


def test_a_specialist_hears_what_the_one_before_it_reported() -> None:
    _, transport = replay_virtually(router, MAIL_FILES_MAIL)

    mail, files, local = (tool.text for tool in MAIL_FILES_MAIL.tools)
    assert transport.tools["t/router/mail#0"] == (mail, local)
    assert transport.tools["t/router/files#0"] == (files, local)
    assert [message["content"] for message in transport.prompts["t/router/files#0"]][1:] == ["Do t.", "look"]
    assert transport.prompts["t/router/mail#2"][-1] == {"role": "user", "content": "42 files"}


def test_the_user_is_heard_by_classifier_and_specialist() -> None:
    task = make_task("t", Turn(content="hello"), Turn(content="bye", user_message="and now?"))

    _, transport = replay_virtually(router, task)

    assert transport.prompts["t/router#1"][-1]["content"] == "and now?"
    assert transport.prompts["t/router/local#1"][-1]["content"] == "and now?"
