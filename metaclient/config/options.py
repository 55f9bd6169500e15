"""The options of ``connect()`` for type checkers: the fields of :class:`Config` by name, without ``meta_mode``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from metaclient.config.tokens import Token

__all__ = ["ConfigOptions", "ConnectOptions"]


class ConfigOptions(TypedDict, total=False):
    """Fields of :class:`Config`; ``tests/unit/test_user_types.py`` compares the two."""

    meta_selector: object
    meta_hedge_delay_s: float
    meta_try_timeout_s: float | None
    meta_try_timeout_min_s: float
    meta_try_timeout_max_s: float
    meta_stale_mark_s: float
    meta_stale_mark_max_s: float
    meta_stale_marks_max: int
    meta_ejection_s: float
    meta_ejection_max_s: float
    meta_refresh_s: float
    meta_refresh_min_s: float
    locate_prefetch: int
    locate_prefetch_max: int
    locate_concurrency: int
    location_cache_regions_max: int
    meta_scan_caching: int
    table_state_ttl_s: float
    open_timeout_s: float
    operation_timeout_s: float
    meta_operation_timeout_s: float
    rpc_timeout_s: float
    rpc_read_timeout_s: float
    rpc_write_timeout_s: float
    meta_rpc_timeout_s: float
    scanner_timeout_s: float
    meta_lookup_timeout_s: float
    pause_s: float
    pause_overloaded_s: float
    retries: int
    nonces: bool
    retry_jitter: float
    retry_budget: float
    retry_budget_burst: int
    start_log_errors: int
    hedge_delay_get_s: float | None
    hedge_delay_scan_s: float | None
    hedge_delay_multiget_s: float | None
    hedge_delay: str
    hedge_quantile: float
    hedge_delay_min_s: float
    hedge_delay_max_s: float
    hedge_samples_min: int
    hedge_plan: str
    hedge_budget: float
    hedge_budget_burst: int
    max_staleness_s: float | None
    scan_caching: int
    scan_max_result_bytes: int
    scan_prefetch: bool
    principal: str | None
    keytab: str | None
    ccache: str | None
    token: Token | Callable[[], Token] | None
    do_as: str | None
    ca: str | None
    cert: str | None
    key: str | None
    verify: bool
    threads_max: int
    queue_max: int
    abandoned_calls_max: int


class ConnectOptions(ConfigOptions, total=False):
    """The options of ``connect()``: those of the configuration, its short names, and happybase's."""

    selector: object
    timeout: int | None
    autoconnect: bool
    table_prefix: bytes | str | None
    table_prefix_separator: bytes | str
