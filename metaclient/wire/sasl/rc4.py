"""The stream cipher RC4, which DIGEST-MD5 needs for privacy.

The package ``cryptography`` is used if it is installed: 1 MB takes 3 ms with it, and 260 ms in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["make_rc4", "make_rc4_in_python"]

#: Encrypts or decrypts the next bytes of one stream.
Rc4 = Callable[[bytes], bytes]


def make_rc4(key: bytes) -> Rc4:
    """Return the cipher for one direction of a connection; its state continues from call to call."""
    try:
        from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
        from cryptography.hazmat.primitives.ciphers import Cipher
    except ImportError:
        return make_rc4_in_python(key)
    encryptor = Cipher(ARC4(key), mode=None).encryptor()
    update: Rc4 = encryptor.update
    return update


def make_rc4_in_python(key: bytes) -> Rc4:
    """
    >>> make_rc4_in_python(b"Key")(b"Plaintext").hex()
    'bbf316e8d940af0ad3'
    """
    stream = _stream(key)

    def update(data: bytes) -> bytes:
        return bytes(byte ^ next(stream) for byte in data)

    return update


def _stream(key: bytes) -> Iterator[int]:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) & 0xFF
        state[i], state[j] = state[j], state[i]
    i = j = 0
    while True:
        i = (i + 1) & 0xFF
        a = state[i]
        j = (j + a) & 0xFF
        b = state[i] = state[j]
        state[j] = a
        yield state[(a + b) & 0xFF]
