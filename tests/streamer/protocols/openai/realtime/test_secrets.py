from engine.api import ModelInfo
from streamer.access.keys import digest_of
from streamer.protocols.openai.realtime import secrets
from streamer.protocols.openai.realtime.options import RealtimeConfig
from streamer.protocols.openai.realtime.secrets import SecretSessions

CONFIG = RealtimeConfig(ModelInfo("base", ("en",), "cpu", "float32"))


def shown(*secrets: str) -> frozenset[bytes]:
    return frozenset(map(digest_of, secrets))


def test_a_secret_has_its_session_until_it_expires() -> None:
    sessions = SecretSessions()
    sessions.bind("ek_one", CONFIG, 100)
    assert sessions.find(shown("other", "ek_one"), 99.9) is CONFIG
    assert sessions.find(shown("ek_one"), 100) is None
    assert sessions.find(shown("ek_two"), 0) is None
    assert sessions.find(frozenset(), 0) is None


def test_only_so_many_are_kept() -> None:
    sessions = SecretSessions()
    for number in range(secrets.MAX_SECRETS + 1):
        sessions.bind(f"ek_{number}", CONFIG, 100)
    assert sessions.find(shown("ek_0"), 0) is None
    assert sessions.find(shown("ek_1"), 0) is CONFIG
