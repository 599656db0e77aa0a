"""Keys and tokens: what lets in, and what does not."""

from __future__ import annotations

import pytest

from streamer.access.keys import (
    ANYONE,
    MAX_LIFETIME_S,
    Access,
    ApiKey,
    KeyFileError,
    KeyLimits,
    KeyRing,
    TokenSigner,
    current_key,
    digest_of,
    parse_key_file,
    parse_keys,
)

SECRET = "a-secret-of-some-length"
OTHER = "another-secret-of-length"
NOW = 1_700_000_000.0


def ring(*secrets: str) -> KeyRing:
    return KeyRing(parse_keys(secrets, KeyLimits()))


def test_a_ring_finds_the_key_of_a_secret_and_no_other() -> None:
    keys = ring(SECRET, OTHER)
    found = keys.find(OTHER)
    assert found is not None and found.digest == digest_of(OTHER)
    assert keys.find(OTHER + "x") is None
    assert keys.find("") is None
    assert keys.find("clé-ünïcode") is None


def test_the_secret_is_kept_nowhere() -> None:
    keys = ring(SECRET)
    assert SECRET not in repr(keys.find(SECRET)) and SECRET not in repr(vars(keys))


def test_a_short_key_is_refused_without_repeating_it() -> None:
    with pytest.raises(KeyFileError, match="at least 16 characters") as caught:
        parse_keys(["hunter2"], KeyLimits())
    assert "hunter2" not in str(caught.value)


def test_a_key_file_holds_digests_and_limits() -> None:
    text = f"""
        [agent]
        sha256 = "{digest_of(SECRET).hex()}"
        max_sessions = 4

        [batch]
        key = "{OTHER}"
        audio_s_per_minute = 600
    """
    agent, batch = parse_key_file(text, KeyLimits(max_sessions=9))
    assert agent == ApiKey("agent", digest_of(SECRET), KeyLimits(4, None))
    assert batch == ApiKey("batch", digest_of(OTHER), KeyLimits(9, 600.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a", "expected TOML"),
        ("a = 1", "expected a table"),
        ("[a]", "one of sha256 and key"),
        ("[a]\nsha256 = 'zz'", "64 hexadecimal"),
        ("[a]\nkey = 5", "wrong type"),
        ("[a]\nkey = 'long-enough-to-be-a-key'\nsize = 2", "no field 'size'"),
        ("[a]\nkey = 'long-enough-to-be-a-key'\nmax_sessions = -1", "at least 0"),
    ],
)
def test_a_broken_key_file_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(KeyFileError, match=message):
        parse_key_file(text, KeyLimits())


def test_two_keys_of_one_name_are_refused() -> None:
    with pytest.raises(KeyFileError, match="twice"):
        KeyRing([ApiKey("a", digest_of(SECRET)), ApiKey("a", digest_of(OTHER))])


def test_a_token_stands_for_its_key_until_it_expires() -> None:
    keys, signer = ring(SECRET), TokenSigner()
    key = keys.find(SECRET)
    assert key is not None
    token = signer.mint(key, 60, NOW)
    assert token.expires_at == NOW + 60
    assert signer.verify(token.value, keys, NOW + 59) == key
    assert signer.verify(token.value, keys, NOW + 60) is None


def test_a_token_dies_with_its_key() -> None:
    keys, signer = ring(SECRET), TokenSigner()
    key = keys.find(SECRET)
    assert key is not None
    value = signer.mint(key, 60, NOW).value
    assert signer.verify(value, ring(OTHER), NOW) is None
    replaced = KeyRing([ApiKey(key.name, digest_of(OTHER))])
    assert signer.verify(value, replaced, NOW) is None


def test_a_token_of_another_secret_or_a_changed_one_is_refused() -> None:
    keys = ring(SECRET)
    key = keys.find(SECRET)
    assert key is not None
    value = TokenSigner("x" * 32).mint(key, 60, NOW).value
    assert TokenSigner("x" * 32).verify(value, keys, NOW) == key
    assert TokenSigner("y" * 32).verify(value, keys, NOW) is None
    for index in range(len(value)):
        changed = value[:index] + ("A" if value[index] != "A" else "B") + value[index + 1 :]
        # the last character's low bits are padding: another spelling of the same signature
        if index < len(value) - 1:
            assert TokenSigner("x" * 32).verify(changed, keys, NOW) is None
        assert TokenSigner("x" * 32).verify(value[:index], keys, NOW) is None


@pytest.mark.parametrize(
    "value", ["", "ek_", "ek_.", "ek_e30.e30", "ek_W10.e30", "ek_\xff.\xff", "ek_bnVsbA.AAAA"]
)
def test_nonsense_is_no_token(value: str) -> None:
    assert TokenSigner().verify(value, ring(SECRET), NOW) is None


def test_a_token_cannot_be_made_to_live_long() -> None:
    token = TokenSigner().mint(ANYONE, 10**9, NOW)
    assert token.expires_at == NOW + MAX_LIFETIME_S


def test_who_shows_nothing_valid_is_nobody() -> None:
    access = Access(ring(SECRET), TokenSigner(), is_required=True)
    assert access.identify([], NOW) is None
    assert access.identify(["wrong"], NOW) is None
    found = access.identify(["wrong", SECRET], NOW)
    assert found is not None and access.is_valid(found)


def test_a_token_made_without_keys_is_worth_nothing_with_them() -> None:
    signer = TokenSigner("x" * 32)
    value = signer.mint(ANYONE, 60, NOW).value
    assert Access(ring(SECRET), signer, is_required=True).identify([value], NOW) is None


def test_without_keys_anyone_may_come() -> None:
    access = Access(KeyRing([]), TokenSigner(), is_required=False)
    assert access.identify([], NOW) is ANYONE
    assert access.is_valid(ANYONE)


def test_a_reload_that_empties_the_ring_lets_nobody_in() -> None:
    access = Access(ring(SECRET), TokenSigner(), is_required=True)
    key = access.identify([SECRET], NOW)
    assert key is not None
    access.ring = KeyRing([])
    assert not access.is_valid(key)
    assert access.identify([SECRET], NOW) is None


def test_a_token_is_for_whom_the_task_serves() -> None:
    keys = ring(SECRET)
    access = Access(keys, TokenSigner(), is_required=True)
    key = keys.find(SECRET)
    assert key is not None
    reset = current_key.set(key)
    try:
        assert access.identify([access.mint_token(60, NOW).value], NOW) == key
    finally:
        current_key.reset(reset)
