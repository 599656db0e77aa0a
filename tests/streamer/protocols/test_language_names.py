from streamer.protocols.language_names import code_of, english_name


def test_names_and_codes_are_each_others() -> None:
    assert english_name("de") == "german" and code_of("German") == "de"
    assert english_name("ht") == "haitian creole" and code_of("Haitian Creole") == "ht"
    assert english_name("yue") == "cantonese" and english_name("en") == "english"


def test_what_is_not_known_stands_for_itself() -> None:
    assert english_name("xx") == "xx" and english_name("") == ""
    assert code_of("pt-BR") == "pt"
