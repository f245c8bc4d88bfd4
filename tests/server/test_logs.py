"""Log lines: one per record, for people, and nobody can forge one."""

import logging
from collections.abc import Iterator

import pytest

from server.logs import OneLine, set_up_logging


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
