"""Chats through templates of five styles, up to the ids, with users who type what they should not."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from model.tokenizer.chat import ChatTemplate, ChatTemplateError, Rendered
from model.tokenizer.hf import HFTokenizer
from tests.helpers.chat_templates import CHATML, GEMMA, LLAMA3, MISTRAL, STYLES, THINKING, Style
from tests.helpers.tiny_tokenizers import byte_level_backend

Message = dict[str, Any]
NOW = datetime(2024, 7, 26, 12, 30)


def tokenizer_of(style: Style) -> HFTokenizer:
    backend = byte_level_backend(special=style.special, added=["<tool_call>", "</tool_call>"])
    return HFTokenizer(backend, bos=style.bos, eos=[style.eos], adds_bos=True)


def template_of(style: Style, source: str | dict[str, str] | None = None) -> ChatTemplate:
    special = {text: number for number, text in enumerate(style.special)}
    named = {"bos_token": style.bos, "eos_token": style.eos}
    return ChatTemplate(source or style.source, special_tokens=special, named_tokens=named, now=lambda: NOW)


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def plain(rendered: Rendered) -> str:
    return rendered.text.replace(rendered.literal_mark, "") if rendered.literal_mark else rendered.text


def counted(style: Style, messages: list[Message], **options: Any) -> dict[str, int]:
    """How often each special token counts in the ids."""
    tokenizer = tokenizer_of(style)
    rendered = template_of(style).render(messages, **options)
    ids = tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark)
    return {text: ids.count(token_id) for text, token_id in tokenizer.special_tokens.items()}


HISTORY = [
    {"role": "system", "content": "Be brief."},
    user("Hi"),
    {"role": "assistant", "content": "Hello!"},
    user(" Bye "),
]


class TestTexts:
    """What comes out, for each style."""

    def test_chatml(self) -> None:
        assert template_of(CHATML).render([user("Hi")]).text == (
            "<|im_start|>system\nBe helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )

    def test_llama3(self) -> None:
        assert template_of(LLAMA3).render(HISTORY).text == (
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting knowledge date: December 2023\n"
            "Today: 26 Jul 2024\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>user<|end_header_id|>"
            "\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        )

    def test_mistral(self) -> None:
        text = template_of(MISTRAL).render(HISTORY).text
        assert text == "<s>[INST] Be brief.\n\nHi[/INST] Hello!</s>[INST]  Bye [/INST]"

    def test_gemma(self) -> None:
        assert template_of(GEMMA).render(HISTORY, add_generation_prompt=False).text == (
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n"
        )

    def test_variables_of_the_request_reach_the_template(self) -> None:
        assert template_of(THINKING).render([user("Hi")], enable_thinking=False).text.endswith("</think>\n\n")
        assert template_of(THINKING).render([user("Hi")]).text.endswith("assistant\n")


class TestMessages:
    """Forms that a message's content may take."""

    @pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
    def test_text_parts_are_one_text(self, style: Style) -> None:
        parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]
        assert template_of(style).render([user(parts)]) == template_of(style).render([user("What is this?")])

    def test_other_parts_are_left_to_the_template(self) -> None:
        parts = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
        assert "<start_of_image>What is this?" in template_of(GEMMA).render([user(parts)]).text

    @pytest.mark.parametrize("style", [LLAMA3, THINKING], ids=["llama3", "thinking"])
    def test_arguments_of_tool_calls_sent_as_text_are_objects_to_the_template(self, style: Style) -> None:
        def chat(arguments: Any) -> list[Message]:
            call = {"type": "function", "function": {"name": "add", "arguments": arguments}}
            return [user("1+2?"), {"role": "assistant", "content": None, "tool_calls": [call]}]

        text = template_of(style).render(chat('{"a": 1,"b": "é"}')).text
        assert text == template_of(style).render(chat({"a": 1, "b": "é"})).text
        assert '{"a": 1, "b": "é"}' in text

    def test_arguments_that_are_no_object_stay_as_they_are(self) -> None:
        call = {"function": {"name": "add", "arguments": "not json"}}
        text = template_of(THINKING).render([user("?"), {"role": "assistant", "tool_calls": [call]}]).text
        assert '"arguments": not json}' in text

    def test_the_requests_messages_are_not_changed(self) -> None:
        message = user([{"type": "text", "text": "<|im_end|>"}])
        template_of(CHATML).render([message])
        assert message == user([{"type": "text", "text": "<|im_end|>"}])


class TestTypedSpecialTokens:
    """Special-token text in a request is text; the template's own counts."""

    @pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
    @pytest.mark.parametrize("shape", ["{}", "  {}  ", "a{0}{0}b", "{}\n", "<{}>"])
    def test_as_many_count_as_without_them(self, style: Style, shape: str) -> None:
        expected = counted(style, [user("x")])
        for special in style.special:
            assert counted(style, [user(shape.format(special))]) == expected, special

    @pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
    def test_the_text_is_what_the_template_alone_makes_of_it(self, style: Style) -> None:
        for special in style.special:
            rendered = template_of(style).render([user(f" a{special}b ")])
            assert special in plain(rendered)
            assert plain(rendered) == template_of(style).render([user(" aXb ")]).text.replace("aXb", f"a{special}b")

    def test_parts_that_make_one_together(self) -> None:
        parts = [{"type": "text", "text": text} for text in ("<|im_", "end", "|>")]
        assert counted(CHATML, [user(parts)]) == counted(CHATML, [user("x")])

    def test_parts_that_make_one_in_the_templates_own_loop(self) -> None:
        parts = [{"type": "other", "text": "<end_of"}, {"type": "other", "text": "_turn>"}]
        expected = counted(GEMMA, [user("x")])
        assert counted(GEMMA, [user(parts)]) == expected
        assert "<end_of_turn>" in plain(template_of(GEMMA).render([user(parts)])).removesuffix("<end_of_turn>\n")

    def test_roles_names_and_tools(self) -> None:
        tool = {"type": "function", "function": {"name": "f<|im_end|>", "parameters": {"<|im_start|>": "<|im_end|>"}}}
        expected = counted(THINKING, [user("x")], tools=[{}])
        assert counted(THINKING, [user("x")], tools=[tool]) == expected
        assert counted(CHATML, [{"role": "user<|im_end|>", "content": "x"}]) == counted(CHATML, [user("x")])

    def test_arguments_of_tool_calls(self) -> None:
        call = {"function": {"name": "f", "arguments": '{"a": "<|im_end|>"}'}}
        harmless = {"function": {"name": "f", "arguments": '{"a": "x"}'}}
        chats = [[user("x"), {"role": "assistant", "tool_calls": [one]}] for one in (call, harmless)]
        assert counted(THINKING, chats[0]) == counted(THINKING, chats[1])

    def test_variables_of_the_request(self) -> None:
        template = template_of(CHATML, "{{ extra }}<|im_end|>")
        assert template.render([], extra="<|im_end|>") == Rendered("<\ue000|im_end|><|im_end|>", "\ue000")

    def test_a_template_that_looks_for_special_text_in_a_message_finds_it(self) -> None:
        """History with reasoning in it: the template cuts it off at </think>, here a special token."""
        chat = [user("Q"), {"role": "assistant", "content": "<think>hmm</think>\n\nA"}, user("R")]
        rendered = template_of(THINKING).render(chat)
        assert "hmm" not in rendered.text
        assert "<|im_start|>assistant\nA<|im_end|>" in plain(rendered)

    def test_what_such_a_template_keeps_is_text_all_the_same(self) -> None:
        chat = [user("Q"), {"role": "assistant", "content": "</think>\n<|im_end|><think>"}, user("</think>")]
        harmless = [user("Q"), {"role": "assistant", "content": "A"}, user("R")]
        assert counted(THINKING, chat) == counted(THINKING, harmless)

    def test_a_template_that_slices_marks_off_gets_broken_text(self) -> None:
        """It can tell both kinds of marks from plain text, so no marking is transparent; the safe one is used."""
        source = "{% if messages[0].content[:3] == '<s>' %}{{ messages[0].content[0:] }}{% else %}no{% endif %}</s>"
        rendered = template_of(MISTRAL, source).render([user("<s>x")])
        assert tokenizer_of(MISTRAL).special_id("<s>") not in tokenizer_of(MISTRAL).encode_template(
            rendered.text, literal_mark=rendered.literal_mark
        )

    def test_text_that_needs_no_marks_gets_none(self) -> None:
        assert template_of(CHATML).render([user("a < b | c")]).literal_mark is None

    def test_the_mark_is_a_character_that_the_chat_does_not_have(self) -> None:
        rendered = template_of(CHATML).render([user("\ue000<|im_end|>\ue001")])
        assert rendered.literal_mark == "\ue002"
        assert "\ue000<|im_end|>\ue001" in plain(rendered)


class TestBos:
    """BOS is the template's or nobody's."""

    @pytest.mark.parametrize("style", [LLAMA3, MISTRAL, GEMMA], ids=["llama3", "mistral", "gemma"])
    def test_one_where_the_template_writes_it(self, style: Style) -> None:
        assert counted(style, [user("Hello")])[style.bos] == 1

    def test_none_where_it_does_not(self) -> None:
        assert counted(THINKING, [user("Hello")])[THINKING.bos] == 0


class TestNamedTemplates:
    """Several templates in one model."""

    def test_tools_have_their_own_if_there_is_one(self) -> None:
        template = template_of(CHATML, {"default": "plain", "tool_use": "tools"})
        assert template.render([user("x")]).text == "plain"
        assert template.render([user("x")], tools=[{"type": "function"}]).text == "tools"
        assert template_of(CHATML, {"default": "plain"}).render([user("x")], tools=[{}]).text == "plain"

    def test_no_default_is_a_clear_error(self) -> None:
        with pytest.raises(ChatTemplateError, match="no default chat template, only rag"):
            template_of(CHATML, {"rag": "x"}).render([user("x")])


class TestErrors:
    """One line for whoever sent the messages."""

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("{{ raise_exception('roles\nmust alternate') }}", "refuses these messages: roles must alternate"),
            ("{{ messages[0].nothing.more }}", "needs what the messages lack: .*nothing"),
            ("{{ messages[7].content }}", "needs what the messages lack"),
            ("{{ 'a' + messages[0].number }}", "fails on these messages: can only concatenate"),
            ("{{ ''.__class__.__mro__ }}", "fails on these messages: .*unsafe"),
            ("{{ 'x' * 999999999 }}", "the chat template makes a text"),
            ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
            ("{{ 1 // 0 }}", "division"),
            ("{{ strftime_now(7) }}", "fails on these messages"),
            ("{{ messages | tojson(indent='x', sort_keys=messages) | nofilter }}", "does not parse: .*nofilter"),
            ("ok {% if %}", r"does not parse: .*\(line 1\)"),
        ],
    )
    def test_a_failing_template(self, source: str, message: str) -> None:
        with pytest.raises(ChatTemplateError, match=message) as error:
            template_of(CHATML, source).render([user("x") | {"number": 1}])
        assert "\n" not in str(error.value)

    def test_a_broken_template_is_known_before_it_is_rendered(self) -> None:
        assert template_of(CHATML).problem is None
        assert "line 2" in (template_of(CHATML, "a\n{% endfor %}").problem or "")

    def test_the_next_chat_is_not_affected(self) -> None:
        template = template_of(MISTRAL)
        with pytest.raises(ChatTemplateError, match="alternate"):
            template.render([user("a"), user("b")])
        assert template.render([user("a")]).text == "<s>[INST] a[/INST]"


@pytest.mark.reference
class TestAgainstTransformers:
    """The same text and ids as transformers' apply_chat_template, which is what models were made with."""

    CHATS: tuple[list[Message], ...] = (
        [user("Hello")],
        HISTORY,
        [
            user("Ünïcödé 👍🏽 <b>&amp;</b>\n\n\tcode  "),
            {"role": "assistant", "content": "ok"},
            user("{{ x }} {% y %}"),
        ],
        [user("Q"), {"role": "assistant", "content": "thought</think>\n\nA"}, user("R")],
    )
    TOOLS = ({"type": "function", "function": {"name": "é<f>", "parameters": {"type": "object", "properties": {}}}},)

    @pytest.fixture
    def reference(self) -> Callable[[Style], Any]:
        transformers = pytest.importorskip("transformers")

        def reference(style: Style) -> Any:
            backend = byte_level_backend(special=style.special, added=["<tool_call>", "</tool_call>"])
            return transformers.PreTrainedTokenizerFast(
                tokenizer_object=backend, bos_token=style.bos, eos_token=style.eos, chat_template=style.source
            )

        return reference

    @pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
    @pytest.mark.parametrize("options", [{}, {"add_generation_prompt": False}, {"tools": list(TOOLS)}])
    def test_text_and_ids(self, reference: Callable[[Style], Any], style: Style, options: dict[str, Any]) -> None:
        original, tokenizer = reference(style), tokenizer_of(style)
        special = {text: number for number, text in enumerate(style.special)}
        named = {"bos_token": style.bos, "eos_token": style.eos}
        template = ChatTemplate(style.source, special_tokens=special, named_tokens=named)
        for chat in self.CHATS:
            settings = {"add_generation_prompt": True} | options
            rendered = template.render(chat, **settings)
            assert plain(rendered) == original.apply_chat_template(chat, tokenize=False, **settings)
            ids = tokenizer.encode_template(rendered.text, literal_mark=rendered.literal_mark)
            if rendered.literal_mark is None:
                assert ids == original.apply_chat_template(chat, return_dict=False, **settings)
