"""How a request says what its answer must look like: OpenAI's response_format, and structured_outputs."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from server.api.types.wire import Wire

MAX_CHOICES = 1000

Schema = dict[str, Any]


class JsonSchemaFormat(Wire):
    """A JSON Schema by name. The answer follows it whether or not strict is set."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Annotated[Schema | None, Field(alias="schema")] = None
    strict: bool | None = None


class ResponseFormat(Wire):
    """OpenAI's. With json_object any JSON object will do."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _fits_its_type(self) -> "ResponseFormat":
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise PydanticCustomError(
                "response_format", "Input should have json_schema exactly when type is json_schema"
            )
        return self


class StructuredOutputs(Wire):
    """One of these. json is a schema, as an object or as its text; grammar is in the Lark dialect of llguidance."""

    json_: Annotated[Schema | str | None, Field(alias="json")] = None
    json_object: Literal[True] | None = None
    regex: str | None = None
    choice: Annotated[list[str], Len(1, MAX_CHOICES)] | None = None
    grammar: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "StructuredOutputs":
        given = (self.json_, self.json_object, self.regex, self.choice, self.grammar)
        if sum(each is not None for each in given) != 1:
            raise PydanticCustomError(
                "structured_outputs", "Input should have one of json, json_object, regex, choice, grammar"
            )
        return self
