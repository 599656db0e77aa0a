"""Who may use the service: API keys, and the short-lived tokens that browsers get in their place.

No I/O and no clock: streamer.transport.access_gate takes credentials out of requests with
streamer.access.credentials and asks here. Keys are held as SHA-256 digests only. A key drawn at
random leaves nothing to guess, so neither salt nor a slow hash is needed; a key that a person made
up is as weak as it is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
import tomllib
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from streamer import schema

TOKEN_PREFIX = "ek_"  # as OpenAI's client secrets begin
MIN_LIFETIME_S, MAX_LIFETIME_S = 10, 7200  # of a token, as of OpenAI's client secrets
MIN_KEY_CHARACTERS = 16  # a shorter key could be found by trying
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


class KeyFileError(ValueError):
    """The key file cannot be used; the message says why and holds no key."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What one key may use. None: as much as the service has."""

    max_sessions: int | None = None  # at once
    audio_s_per_minute: float | None = None  # seconds of audio, all its sessions together


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    name: str  # what logs and metrics call it
    digest: bytes  # SHA-256 of the secret
    limits: KeyLimits = KeyLimits()


# the caller where the service has no keys
ANYONE = ApiKey("", b"")

# whose request the current task serves; set by the gate, for what all protocols share
current_key: ContextVar[ApiKey] = ContextVar("current_key", default=ANYONE)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One table of the key file."""

    sha256: str | None = None
    key: str | None = None
    max_sessions: int | None = None
    audio_s_per_minute: float | None = None


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def parse_keys(secrets_: Iterable[str], limits: KeyLimits) -> list[ApiKey]:
    """Make keys of secrets that stand in the environment; named by their digests.

    Raises:
        KeyFileError: one of them is too short to be safe.
    """
    keys = []
    for index, secret in enumerate(secrets_):
        _check_length(secret, f"key {index + 1}")
        digest = digest_of(secret)
        keys.append(ApiKey(f"key-{digest.hex()[:8]}", digest, limits))
    return keys


def parse_key_file(text: str, limits: KeyLimits) -> list[ApiKey]:
    """Read a key file: TOML with a table for each key, named as logs are to name it.

    A table holds `sha256` (of the key, in hex) or `key`, and may hold `max_sessions` and
    `audio_s_per_minute`; `limits` stand for what it leaves out.

    Raises:
        KeyFileError: names the table that is wrong.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KeyFileError(f"expected TOML, got {error}") from None
    keys = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise KeyFileError(f"expected a table for each key, got a value named {name!r}")
        try:
            entry, unknown = schema.build(_Entry, table)
        except schema.FieldError as error:
            # the found value may be a secret
            raise KeyFileError(f"[{name}] {error.field}: has the wrong type") from None
        if unknown:
            raise KeyFileError(f"[{name}] expected no field {unknown[0]!r}")
        keys.append(ApiKey(name, _digest_in(name, entry), _limits_in(name, entry, limits)))
    return keys


def _digest_in(name: str, entry: _Entry) -> bytes:
    if (entry.sha256 is None) == (entry.key is None):
        raise KeyFileError(f"[{name}] expected one of sha256 and key")
    if entry.key is not None:
        _check_length(entry.key, f"[{name}] key")
        return digest_of(entry.key)
    assert entry.sha256 is not None
    if not _HEX_DIGEST.fullmatch(entry.sha256.lower()):
        raise KeyFileError(f"[{name}] sha256: expected 64 hexadecimal digits")
    return bytes.fromhex(entry.sha256)


def _limits_in(name: str, entry: _Entry, defaults: KeyLimits) -> KeyLimits:
    sessions, audio = entry.max_sessions, entry.audio_s_per_minute
    if (sessions is not None and sessions < 0) or (audio is not None and audio < 0):
        raise KeyFileError(f"[{name}] expected limits of at least 0")
    return KeyLimits(
        defaults.max_sessions if sessions is None else sessions,
        defaults.audio_s_per_minute if audio is None else audio,
    )


def _check_length(secret: str, name: str) -> None:
    if len(secret) < MIN_KEY_CHARACTERS:
        raise KeyFileError(
            f"{name}: expected at least {MIN_KEY_CHARACTERS} characters, got {len(secret)}"
        )


class KeyRing:
    """The keys in force. A reload makes a new ring."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        """Hold keys.

        Raises:
            KeyFileError: two keys of one name.
        """
        self._keys: dict[str, ApiKey] = {}
        for key in keys:
            if key.name in self._keys and self._keys[key.name] != key:
                raise KeyFileError(f"expected each name once, got {key.name!r} twice")
            self._keys[key.name] = key

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, secret: str) -> ApiKey | None:
        """Find the key of a secret; takes as long whichever key it is, or none."""
        digest = digest_of(secret)
        found = None
        for key in self._keys.values():
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    def named(self, name: str) -> ApiKey | None:
        return self._keys.get(name)

    def holds(self, key: ApiKey) -> bool:
        """Return whether a key that was let in once still counts."""
        held = self._keys.get(key.name)
        return held is not None and held.digest == key.digest


@dataclass(frozen=True, slots=True)
class BrowserToken:
    """A token that stands for a key until it expires."""

    value: str
    expires_at: int  # Unix time, seconds


class TokenSigner:
    """Makes and checks tokens: the key's name and the expiry, signed.

    Nothing is stored, so replicas that share a secret know each other's tokens. The signature
    covers the key's digest: a token dies with its key.
    """

    def __init__(self, secret: str = "") -> None:
        """Use a secret; without one, tokens hold as long as this process."""
        self._secret = secret.encode() if secret else secrets.token_bytes(32)

    def mint(self, key: ApiKey, lifetime_s: float, now: float) -> BrowserToken:
        """Make a token.

        Args:
            lifetime_s: brought within MIN_LIFETIME_S and MAX_LIFETIME_S.
            now: Unix time, seconds.
        """
        lifetime_s = min(max(lifetime_s, MIN_LIFETIME_S), MAX_LIFETIME_S)
        return self._sign(key, int(now + lifetime_s))

    def mint_cookie(self, key: ApiKey, now: float, lifetime_s: float) -> BrowserToken:
        """Make a token for a cookie, which may live longer than one that a page can read."""
        return self._sign(key, int(now + lifetime_s))

    def verify(self, value: str, ring: KeyRing, now: float) -> ApiKey | None:
        """Find the key that a token stands for; None if it is forged, expired, or its key gone."""
        payload, dot, signature = value.removeprefix(TOKEN_PREFIX).partition(".")
        if not (value.startswith(TOKEN_PREFIX) and dot):
            return None
        try:
            fields = json.loads(_decode(payload))
            name, expires_at = fields["key"], fields["exp"]
            given = _decode(signature)
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        if not isinstance(name, str) or type(expires_at) is not int:
            return None
        key = ANYONE if name == ANYONE.name else ring.named(name)
        if key is None or not hmac.compare_digest(given, self._signature(payload, key)):
            return None
        return key if now < expires_at else None

    def _sign(self, key: ApiKey, expires_at: int) -> BrowserToken:
        fields = {"key": key.name, "exp": expires_at, "nonce": secrets.token_urlsafe(6)}
        payload = _encode(json.dumps(fields).encode())
        return BrowserToken(
            f"{TOKEN_PREFIX}{payload}.{_encode(self._signature(payload, key))}", expires_at
        )

    def _signature(self, payload: str, key: ApiKey) -> bytes:
        return hmac.digest(self._secret, payload.encode() + b"\0" + key.digest, "sha256")


class Access:
    """The keys and the signer together: whose a secret is."""

    def __init__(self, ring: KeyRing, signer: TokenSigner, *, is_required: bool) -> None:
        """Set up.

        Args:
            is_required: refuse callers without a valid key. Stays true when a reload empties the
                ring.
        """
        self.ring = ring  # replaced by a reload
        self.signer = signer
        self.is_required = is_required

    def identify(self, candidates: Iterable[str], now: float) -> ApiKey | None:
        """Find whose request it is: the first candidate that is a key or a valid token.

        Args:
            candidates: what stood where a credential may stand.
            now: Unix time, seconds.

        Returns:
            ANYONE where no key is needed; None where one is, and none of these is valid.
        """
        if not self.is_required:
            return ANYONE
        for secret in candidates:
            key = self.signer.verify(secret, self.ring, now) or self.ring.find(secret)
            if key is not None and key is not ANYONE:
                return key
        return None

    def is_valid(self, key: ApiKey) -> bool:
        """Return whether a key that was let in is still good after reloads."""
        return not self.is_required or self.ring.holds(key)

    def mint_token(self, lifetime_s: float, now: float) -> BrowserToken:
        """Make a token for whoever the current task serves."""
        return self.signer.mint(current_key.get(), lifetime_s, now)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
