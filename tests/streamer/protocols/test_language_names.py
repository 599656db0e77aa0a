from streamer.protocols.language_names import english_name, read_language


def test_names_and_codes_are_each_others() -> None:
    assert english_name("de") == "german" and read_language("German") == "de"
    assert english_name("ht") == "haitian creole" and read_language("Haitian Creole") == "ht"
    assert english_name("yue") == "cantonese" and english_name("en") == "english"


def test_what_is_not_known_stands_for_itself() -> None:
    assert english_name("xx") == "xx" and english_name("") == ""
    assert read_language("pt-BR") == "pt"


def test_every_way_to_ask_for_detection_and_every_name_of_a_language_is_read() -> None:
    assert [read_language(name) for name in (None, "", " ", "auto", "AUTO")] == [None] * 5
    names = {"de": "de", " DE ": "de", "de-DE": "de", "de_AT": "de", "nb-NO": "no", "iw": "he"}
    assert {name: read_language(name) for name in names} == names
    assert read_language("no such language") == "no such language"
