"""The settings of PGM, with the values of [MC-MQSRM] 2.1.3.1, and the limits on what strangers can make us keep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PgmSettings:
    """The names are those of [RFC 3208]; times end in their unit."""

    txw_max_rte: int = 70_000  # bytes per second, with the IP header
    txw_secs: float = 300.0
    txw_bytes: int = 64 << 20  # a limit on the size of the window, besides its time
    adv_percent: float = 15.0  # TXW_ADV_SECS and TXW_ADV_IVL, as a part of TXW_SECS
    token_bucket_s: float = 0.040
    ihb_min_s: float = 1.0
    ihb_max_s: float = 15.0
    ambient_packets: int = 50
    ambient_s: float = 0.5
    rdata_delay_s: float = 0.060
    nak_rb_ivl_s: tuple[float, float] = (0.010, 0.050)
    nak_rpt_ivl_s: float = 0.75
    nak_rdata_ivl_s: float = 2.0
    nak_ncf_retries: int = 10
    nak_data_retries: int = 10
    max_apdu: int = 64 << 10
    max_tpdu: int = 1400  # of an IP packet; it fits any common link
    opening_s: float = 0.1  # from the first SPM to the first data: a receiver that hears one of the SPMs misses nothing
    linger_s: float = 10.0  # how long a source that has ended still repairs
    # Limits
    sources: int = 128  # of one group at a time
    source_bytes: int = 32 << 20  # out of order, for one source: a repair may take 5 s at 2 MB/s and more
    all_bytes: int = 64 << 20  # out of order, for all sources of a group
    missing: int = 2048  # packets of one source that are asked for at a time
    source_silence_s: float = 300.0
    pending_repairs: int = 65_536  # packets that wait to be sent again

    @property
    def txw_adv_secs(self) -> float:
        return self.txw_secs * self.adv_percent / 100

    @property
    def txw_adv_ivl(self) -> float:
        return self.txw_secs * self.adv_percent / 100
