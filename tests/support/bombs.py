"""Small files that hold very much audio: silence packed as tightly as its codec can."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np

from engine.api import SAMPLE_RATE
from tests.support.containers import encode

FLAC_BLOCK = 65_535  # samples a frame, the most that there is


@cache
def flac_bomb(num_bytes: int, *, block: int = FLAC_BLOCK) -> bytes:
    """Make a FLAC file of silence at 16 kHz, in constant frames: 15 bytes for four seconds."""
    info = struct.pack(">HH", block, block) + bytes(6)
    packed = SAMPLE_RATE << 44 | 0 << 41 | 15 << 36  # mono, 16 bits, of unknown length
    info += packed.to_bytes(8, "big") + bytes(16)
    head = b"fLaC" + bytes([0x80]) + len(info).to_bytes(3, "big") + info
    out = bytearray(head)
    number = 0
    frames = []
    for number in range(2_000):
        # sync, fixed blocks; 16-bit block size, 16 kHz; mono, 16 bits
        frame = bytes([0xFF, 0xF8, 0x75, 0x08]) + _utf8(number) + struct.pack(">H", block - 1)
        frame += bytes([_crc8(frame)]) + bytes([0x00, 0x00, 0x00])  # a constant subframe of 0
        frames.append(frame + struct.pack(">H", _crc16(frame)))
    again = b"".join(frames)
    while len(out) < num_bytes:
        out += again
    return bytes(out[:num_bytes])


@cache
def opus_bomb(num_bytes: int, container: str = "webm") -> bytes:
    """Make a WebM or Ogg file of ten minutes of silence, over and over."""
    minutes = encode(container, "libopus", np.zeros(600 * SAMPLE_RATE, np.float32), rate=48_000)
    return (minutes * (num_bytes // len(minutes) + 1))[:num_bytes]


def _utf8(number: int) -> bytes:
    return chr(number).encode()


def _crc8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07 if crc & 0x80 else crc << 1) & 0xFF
    return crc


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x8005 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc
