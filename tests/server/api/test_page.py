"""The page: one small document that loads nothing and allows nothing but itself."""

import base64
import hashlib
import re

from tests.helpers.api_world import make_world
from tests.helpers.asgi import call


async def page() -> tuple[str, str]:
    answered = await call(make_world().app, "GET", "/")
    assert answered.status == 200
    assert answered.headers["content-type"] == "text/html; charset=utf-8"
    return answered.body.decode(), answered.headers["content-security-policy"]


async def test_it_is_small_and_whole() -> None:
    text, _ = await page()
    assert len(text.encode()) < 100_000
    assert "{style}" not in text
    assert "{script}" not in text


async def test_it_names_nothing_outside() -> None:
    text, _ = await page()
    assert not re.search(r"https?://", text)
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?!data:)", text)


async def test_its_policy_is_made_for_exactly_these_scripts_and_styles() -> None:
    text, policy = await page()
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert " style=" not in text
    assert not re.search(r" on[a-z]+=\"", text)


async def test_every_id_that_the_script_asks_for_is_there() -> None:
    text, _ = await page()
    asked = set(re.findall(r"at\(\"([\w-]+)\"\)", text))
    assert asked
    assert asked <= set(re.findall(r" id=\"([\w-]+)\"", text))
