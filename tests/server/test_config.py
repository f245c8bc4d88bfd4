"""Settings: where each comes from, what each allows, and what a bad one says."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.config import EngineConfig, ServerConfig, build_config, describe
from server.setting import ConfigError, Setting, parse_bytes
from server.settings import DEFAULT_MODEL, SETTINGS

BY_NAME = {setting.name: setting for setting in SETTINGS}

# name: a good text, its value; texts that are refused
EXAMPLES: dict[str, tuple[str, object, tuple[str, ...]]] = {
    "model": ("hf:a/b", "hf:a/b", ("", " ", "a\nb")),
    "host": ("::1", "::1", ("", "\x00")),
    "port": ("0", 0, ("", "abc", "-1", "65536", "8000.0", "8_000", " 80", "８０", "1e3", "tcp://10.0.0.1:8000")),
    "served-model-name": ("my model", "my model", ("",)),
    "device": ("cuda", "cuda", ("gpu", "CPU", "cuda:0", "")),
    "backend": ("native", "native", ("onnx", "cuda")),
    "dtype": ("bfloat16", "bfloat16", ("float16", "bf16")),
    "quantize": ("int4", "int4", ("q4", "Q4_1", "8")),
    "threads": ("7", 7, ("0", "-1", "1025", "two")),
    "max-model-len": ("4096", 4096, ("0", "-5", "100000001", "4k")),
    "max-num-seqs": ("1", 1, ("0", "4097")),
    "max-num-batched-tokens": ("128", 128, ("0", "1048577", "0x40")),
    "target-inter-token-ms": ("50", 50, ("0", "60001", "nan")),
    "block-size": ("32", 32, ("0", "1025", "16.0")),
    "kv-cache-memory": ("512MiB", 2**29, ("0", "-1GB", "1kB", "nan", "GB", "1.5.0GB", "1 QB", "inf", "2000TiB", "1e9")),
    "kv-cache-dtype": ("int8", "int8", ("float16", "fp8")),
    "prefix-cache": ("off", False, ("maybe", "", "2")),
    "prefix-cache-dir": ("/var/cache/kvell", "/var/cache/kvell", ("", "~no-such-user/cache")),
    "prefix-cache-size": ("1.5GiB", 3 * 2**29, ("0", "1kB", "much")),
    "max-waiting-requests": ("0", 0, ("-1", "1000001")),
    "max-waiting-tokens": ("5000", 5000, ("0", "1.5")),
    "max-queue-seconds": ("2.5", 2.5, ("0", "-1", "OFF", "none", "inf")),
    "default-timeout": ("2.5", 2.5, ("0", "nan", "-1")),
    "api-key": ("sk-1 2", "sk-1 2", ("", "  ", "a\nb")),
    "api-key-file": ("/etc/keys", Path("/etc/keys"), ("", "~no-such-user/keys")),
    "open-metrics": ("on", True, ("maybe",)),
    "metrics-compat": ("vllm", "vllm", ("tgi", "")),
    "share-prefixes": ("on", True, ("maybe",)),
    "trust-request-chat-template": ("on", True, ("maybe",)),
    "cors-origins": ("http://a:1, *", ("http://a:1", "*"), ("", "a.example", "http://a/path", "ftp://a", "http://a,")),
    "tls-certfile": ("/etc/cert.pem", Path("/etc/cert.pem"), ("", "~no-such-user/cert")),
    "tls-keyfile": ("/etc/key.pem", Path("/etc/key.pem"), ("", "~no-such-user/key")),
    "drain-timeout": ("2.5", 2.5, ("-1", "nan", "inf", "30s", "86401")),
    "engine-timeout": ("45", 45.0, ("0.5", "0", "nan", "3601")),
    "sse-ping": ("0.5", 0.5, ("0", "-1", "inf")),
    "log-format": ("json", "json", ("JSON", "text")),
    "log-prompts": ("on", True, ("maybe",)),
    "otlp-endpoint": ("http://a:4318", "http://a:4318", ("", "a:4318", "grpc://a", "http://a b")),
    "log-level": ("debug", "debug", ("DEBUG", "trace", "")),
}
TOGETHER = {"tls-certfile": "tls-keyfile", "tls-keyfile": "tls-certfile"}  # one is a mistake without the other
ALL = pytest.mark.parametrize("name", sorted(BY_NAME))


def read(config: ServerConfig, setting: Setting) -> object:
    """The value that a setting has ended in."""
    return getattr(config.engine if setting.engine else config, setting.field) if setting.field else None


def beside(name: str) -> dict[str, str]:
    """What has to be set with it."""
    return {other: "/etc/other" for mine, other in TOGETHER.items() if mine == name}


def test_a_certificate_without_its_key_is_a_mistake() -> None:
    for name in TOGETHER:
        with pytest.raises(ConfigError, match=r"--tls-certfile .* and --tls-keyfile .* go together"):
            build_config({name: "/etc/a.pem"}, {})


def test_the_names_that_users_rely_on_are_frozen() -> None:
    assert sorted(BY_NAME) == sorted(EXAMPLES)
    assert len(SETTINGS) == len(BY_NAME)


def test_a_limit_that_can_be_off_is_none_then() -> None:
    assert build_config({"max-queue-seconds": "off"}, {}).max_queue_s is None
    assert build_config({}, {}).max_queue_s == 1.0


def test_nothing_set_is_all_defaults() -> None:
    assert build_config({}, {}) == ServerConfig(model=DEFAULT_MODEL, engine=EngineConfig(model_path=DEFAULT_MODEL))


@ALL
def test_each_can_be_set_by_its_flag(name: str) -> None:
    text, value, _ = EXAMPLES[name]
    assert read(build_config({name: text} | beside(name), {}), BY_NAME[name]) == value


@ALL
def test_each_can_be_set_by_its_variable(name: str) -> None:
    text, value, _ = EXAMPLES[name]
    variable = "KVELL_" + name.upper().replace("-", "_")
    assert read(build_config(beside(name), {variable: text}), BY_NAME[name]) == value


@ALL
def test_a_flag_goes_before_its_variable(name: str) -> None:
    text, value, bad = EXAMPLES[name]
    config = build_config({name: text} | beside(name), {BY_NAME[name].env: bad[-1]})
    assert read(config, BY_NAME[name]) == value


@ALL
def test_a_flag_that_was_not_given_leaves_the_variable(name: str) -> None:
    text, value, _ = EXAMPLES[name]
    config = build_config({name: None} | beside(name), {BY_NAME[name].env: text})
    assert read(config, BY_NAME[name]) == value


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, (_, _, bad) in EXAMPLES.items() for text in bad])
def test_a_bad_value_is_one_line_that_names_key_value_and_what_is_allowed(name: str, text: str) -> None:
    setting = BY_NAME[name]
    with pytest.raises(ConfigError) as error:
        build_config({name: text}, {})
    message = str(error.value)
    assert message.startswith(f"{setting.flag} ({setting.env}) is ")
    assert message.endswith(f"; allowed: {setting.allowed}")
    assert "\n" not in message
    if text.isprintable() and not setting.secret:
        assert f'"{text}"' in message


def test_the_message_as_a_user_sees_it() -> None:
    with pytest.raises(ConfigError) as error:
        build_config({}, {"KVELL_PORT": "abc"})
    assert str(error.value) == '--port (KVELL_PORT) is "abc"; allowed: 0 to 65535'


@ALL
def test_an_empty_variable_is_one_that_is_not_set_except_for_a_secret(name: str) -> None:
    setting = BY_NAME[name]
    if setting.secret:
        with pytest.raises(ConfigError, match="not usable"):
            build_config({}, {setting.env: ""})
    else:
        assert build_config({}, {setting.env: ""}) == build_config({}, {})


def test_a_secret_is_shown_nowhere() -> None:
    with pytest.raises(ConfigError) as error:
        build_config({"api-key": "hush\nhush"}, {})
    assert "hush" not in str(error.value)
    shown = describe(build_config({"api-key": "hush"}, {}))
    assert shown["api_key"] == "set"
    assert "hush" not in str(shown)


def test_describe_names_every_field() -> None:
    names = {field.name for kind in (ServerConfig, EngineConfig) for field in dataclasses.fields(kind)}
    assert set(describe(build_config({}, {}))) == names - {"engine"}


def test_every_field_can_be_set() -> None:
    fields = {setting.field for setting in SETTINGS}
    names = {field.name for kind in (ServerConfig, EngineConfig) for field in dataclasses.fields(kind)}
    assert names - fields == {"engine", "model_path"}


def test_a_step_must_have_room_for_every_sequence() -> None:
    assert build_config({"max-num-seqs": "512"}, {}).engine.max_num_seqs == 512
    with pytest.raises(ConfigError, match=r"--max-num-batched-tokens .* is 512; allowed: at least --max-num-seqs, 513"):
        build_config({"max-num-seqs": "513"}, {})


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown setting: prot"):
        build_config({"prot": "1"}, {})


def test_a_folder_for_prefixes_needs_a_prefix_cache() -> None:
    with pytest.raises(ConfigError, match=r"--prefix-cache-dir .* needs --prefix-cache on"):
        build_config({"prefix-cache-dir": "/var/cache/kvell", "prefix-cache": "off"}, {})


def test_a_folder_is_the_same_wherever_the_engine_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert build_config({"prefix-cache-dir": "here"}, {}).engine.prefix_cache_dir == str(tmp_path / "here")


def test_other_variables_are_no_business_of_ours() -> None:
    assert build_config({}, {"PORT": "1", "KVELL_SERVICE_HOST": "10.0.0.1"}) == build_config({}, {})


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 2**20),
        ("1MiB", 2**20),
        ("1mib", 2**20),
        ("2GB", 2 * 10**9),
        ("1.5 GiB", 3 * 2**29),
        ("2000kB", 2_000_000),
        ("0.5GiB", 2**29),
        ("1TB", 10**12),
        ("3000000B", 3_000_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.sampled_from(SETTINGS), st.text(max_size=30))
def test_any_text_is_a_value_or_a_one_line_error(setting: Setting, text: str) -> None:
    message = ""
    try:
        setting.read(text)
    except ConfigError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1
