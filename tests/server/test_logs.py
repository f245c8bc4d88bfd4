"""Log lines: one per record, for people, and nobody can forge one."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from server.logs import JsonLine, OneLine, set_up_logging


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_record_is_one_line_with_time_level_and_name(capsys) -> None:
    set_up_logging("info")
    logging.getLogger("kvell.request").info("POST %s %d", "/v1/completions", 200)
    (line,) = lines(capsys)
    time, level, rest = line.split(maxsplit=2)
    assert len(time.split(":")) == 3
    assert (level, rest) == ("INFO", "kvell.request: POST /v1/completions 200")


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_decides(capsys, level: str, count: int) -> None:
    set_up_logging(level)
    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("server").log(number, "line")
    assert len(lines(capsys)) == count


@pytest.mark.parametrize("nasty", ["a\n12:00:00 INFO    forged: line", "a\r\nb", "\x1b[31mred", "a\u2028b", "a\x00b"])
def test_a_client_can_not_write_lines_of_its_own(capsys, nasty: str) -> None:
    set_up_logging("info")
    logging.getLogger("kvell.request").info("GET %s", nasty)
    (line,) = lines(capsys)
    assert line.isprintable()
    assert "GET a" in line or "GET \\x1b" in line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("team-a", "team-a"),
        (12, "12"),
        (0.12345, "0.123"),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('"', '"\\""'),
        (("a\nb",), '["a\\nb"]'),
        ("\u2028", '"\\u2028"'),
    ],
)
def test_fields_follow_the_message_each_of_them_one_word(capsys, value: object, shown: str) -> None:
    set_up_logging("info")
    logging.getLogger("kvell.request").info("GET /", extra={"fields": {"name": value, "last": 1}})
    (line,) = lines(capsys)
    assert line.endswith(f"kvell.request: GET / name={shown} last=1")


def json_line(said: str, /, *given: object, exc_info: object = None, **fields: object) -> tuple[str, dict[str, object]]:
    record = logging.LogRecord("kvell.x", logging.WARNING, "f", 1, said, given, exc_info)  # type: ignore[arg-type]
    record.fields = fields
    line = JsonLine().format(record)
    return line, json.loads(line)


def test_in_json_a_record_is_an_object_with_its_fields_as_members() -> None:
    _, found = json_line("%s came", "it", id="a b", tokens=3, total_s=0.25, prompts=("x",))
    time = datetime.fromisoformat(str(found.pop("time")))
    assert time.tzinfo is not None
    expected = {"level": "warning", "logger": "kvell.x", "message": "it came"}
    assert found == expected | {"id": "a b", "tokens": 3, "total_s": 0.25, "prompts": ["x"]}


@pytest.mark.parametrize("nasty", ['a\n{"level": "info"}', "a\r\nb", "\x1b[31m", "\u2028", "\x00", '"', "\ud800"])
def test_in_json_nobody_can_end_the_line_either(nasty: str) -> None:
    line, found = json_line("GET %s", nasty, path=nasty)
    assert line.isascii()
    assert line.isprintable()
    assert (found["message"], found["path"]) == (f"GET {nasty}", nasty)


def test_a_field_can_not_pass_for_what_the_log_itself_says() -> None:
    _, found = json_line("real", message="forged", level="forged", time="forged", logger="forged")
    assert (found["message"], found["level"], found["logger"]) == ("real", "warning", "kvell.x")
    assert found["time"] != "forged"


def test_in_json_a_traceback_is_a_member() -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        line, found = json_line("it failed", exc_info=sys.exc_info())
    assert len(line.splitlines()) == 1
    assert str(found["traceback"]).endswith("ValueError: a bug")


CHILD = r"import sys; sys.stderr.write('a child\nwrites\n\n')"
SCRIPT = rf"""
import logging, os, subprocess, sys
from server.logs import set_up_logging
set_up_logging("info", "json")
logging.getLogger("kvell").info("ours")
subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
os.write(2, b"native \xff code\n")
sys.stderr.write("half a line, ")
raise SystemExit("last words")
"""


def test_in_json_what_others_write_to_standard_error_is_objects_too() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (ended.returncode, ended.stdout) == (1, "")
    messages = [each["message"] for each in found]
    assert messages == ["ours", "a child", "writes", "native \\xff code", "half a line, last words"]
    assert [each["logger"] for each in found] == ["kvell"] + ["kvell.stderr"] * 4


MANY = """
import sys
from server.logs import set_up_logging
set_up_logging("info", "json")
sys.stderr.write("a word\\n" * 5000)
"""


def test_in_json_none_of_the_last_words_is_lost() -> None:
    ended = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["a word"] * 5000


def test_other_scripts_stay_readable() -> None:
    record = logging.LogRecord("n", logging.INFO, "f", 1, "grüß %s", ("世界",), None)
    assert OneLine("%(message)s").format(record) == "grüß 世界"


def test_a_traceback_keeps_its_lines(capsys) -> None:
    set_up_logging("info")
    try:
        raise ValueError("a bug")
    except ValueError:
        logging.getLogger("server").exception("it failed")
    output = lines(capsys)
    assert output[0].endswith("server: it failed")
    assert output[1] == "Traceback (most recent call last):"
    assert output[-1] == "ValueError: a bug"


def test_uvicorn_writes_its_errors_but_no_access_lines(capsys) -> None:
    set_up_logging("info")
    logging.getLogger("uvicorn.access").info("GET / 200")
    logging.getLogger("uvicorn.error").info("started")
    output = lines(capsys)
    assert [line.split(": ", 1)[1] for line in output] == ["started"]


def test_chatty_libraries_are_heard_only_when_they_warn(capsys) -> None:
    set_up_logging("debug")
    logging.getLogger("httpx").info("HTTP Request")
    logging.getLogger("httpx").warning("odd")
    assert len(lines(capsys)) == 1


def test_setting_up_twice_writes_every_line_once(capsys) -> None:
    set_up_logging("info")
    set_up_logging("info")
    logging.getLogger("server").info("once")
    assert len(lines(capsys)) == 1
