import pytest

from engine.api import ModelInfo
from streamer.protocols.openai.error import ApiError, check_language, check_model

INFO = ModelInfo("base", ("en", "de"), "cpu", "float32")


def test_an_error_has_the_vendors_fields() -> None:
    error = ApiError("no", code="some_code", param="field")
    assert error.fields == {
        "message": "no",
        "type": "invalid_request_error",
        "param": "field",
        "code": "some_code",
    }


@pytest.mark.parametrize("name", ["de", "DE", " de ", "de-AT", "de_CH", "German", "german"])
def test_languages_are_known_by_code_tag_and_name(name: str) -> None:
    assert check_language(name, INFO) == "de"


def test_no_language_leaves_it_to_detection() -> None:
    assert check_language(None, INFO) is None and check_language("", INFO) is None


def test_what_is_not_served_is_refused() -> None:
    with pytest.raises(ApiError, match="klingon"):
        check_language("klingon", INFO)
    with pytest.raises(ApiError) as caught:
        check_model("gpt-5", INFO)
    assert caught.value.status == 404 and caught.value.code == "model_not_found"
