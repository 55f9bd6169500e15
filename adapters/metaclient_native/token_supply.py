"""The tokens for new connections, where they are replaced: fetched by a function, or read from Hadoop's file.

A token of HBase cannot be renewed; a new one replaces it. An open connection outlives its token, so a new token is
needed only for a new connection, and is looked for when one is made:

1. A function (``token=``) is called for the first connection, and again after 80 % of the token's life. If it fails
   then, the old token is used until it expires.
2. The file of ``HADOOP_TOKEN_FILE_LOCATION`` is read again when it has changed.
"""

from __future__ import annotations

import logging
import os

from metaclient.config.security import SecuritySettings
from metaclient.config.tokens import Token, read_token_file
from metaclient.errors import AuthenticationFailed, ConfigError, MetaClientError

__all__ = ["TokenSupply"]

_log = logging.getLogger(__name__)


class TokenSupply:
    """The tokens of one client. Several tasks may ask at once; a new token is then fetched by one of them."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._fetch = settings.fetch_token
        self._file = settings.token_file
        self._tokens = settings.tokens
        self._read_as: object = None  # the state of the file when it was read last
        self._is_fetching = False

    def tokens(self, time_ms: int) -> tuple[Token, ...]:
        """Return the tokens to choose from at this wall-clock time; none: the client uses Kerberos.

        AuthenticationFailed if the function fails and there is no token that is valid.
        """
        if self._fetch is not None:
            if not self._tokens or time_ms >= self._tokens[0].renew_ms:
                self._renew(time_ms)
        elif self._file is not None:
            self._read_again(self._file)
        return self._tokens

    def _renew(self, time_ms: int) -> None:
        old = self._tokens[0] if self._tokens and time_ms < self._tokens[0].expires_ms else None
        if self._is_fetching and old is not None:
            return
        self._is_fetching = True
        try:
            self._tokens = (self._fetch_one(),)
        except MetaClientError as error:
            if old is None:
                raise
            _log.warning("%r is used until it expires, because no new token was fetched: %s", old, error)
        finally:
            self._is_fetching = False

    def _fetch_one(self) -> Token:
        assert self._fetch is not None
        try:
            token = self._fetch()
        except MetaClientError:
            raise
        except Exception as error:  # of the application; its text may hold a secret
            raise AuthenticationFailed(
                f"the function that was given as token= failed with {type(error).__name__}; see the cause"
            ) from error
        if not isinstance(token, Token):
            raise AuthenticationFailed(
                f"the function that was given as token= returned a {type(token).__name__}, not a metaclient.Token"
            )
        return token

    def _read_again(self, path: str) -> None:
        try:
            status = os.stat(path)
        except OSError as error:
            _log.debug("%s is not read again: %s", path, error.strerror)
            return
        read_as = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if read_as == self._read_as:
            return
        try:
            found = read_token_file(path)
        except ConfigError as error:  # it is being written
            _log.warning("the tokens that were read before are used: %s", error)
            return
        self._read_as = read_as
        if found:
            self._tokens = found
