"""`get_hm_devices`, which the vendor's LLM examples import."""

import os

from tcim_lite.runtime import get_device_num

from . import smi

__all__ = ["get_hm_devices"]


def get_hm_devices(ndevices: int = 1) -> list[int]:
    """Picks devices for a model.

    Args:
        ndevices: how many.

    Returns:
        Consecutive ids that exist, from the smallest entry of `HOUMO_VISIBLE_DEVICES`, else from 0.

    Raises:
        AssertionError: there are fewer.
        ValueError: `ndevices` is less than 1, or an entry is no number.
    """
    if ndevices < 1:
        raise ValueError(f"ndevices={ndevices}: expected at least 1")
    visible = os.environ.get("HOUMO_VISIBLE_DEVICES", "")
    try:
        listed = [int(entry) for entry in visible.split(",")] if visible else []
    except ValueError:
        raise ValueError(f"HOUMO_VISIBLE_DEVICES={visible!r}: expected device ids such as 0,1") from None
    if visible and len(listed) < ndevices:
        raise AssertionError(f"HOUMO_VISIBLE_DEVICES={visible!r} lists {len(listed)} devices, {ndevices} are needed")
    first = min(listed, default=0)
    ids = list(range(first, first + ndevices))
    if not smi.device_ctc_check(ids):
        raise AssertionError(
            f"the devices {ids} do not all exist: there are {get_device_num()}"
            + (
                f", HOUMO_VISIBLE_DEVICES={visible!r}; list consecutive ids"
                if visible
                else "; set TCIM_LITE_DEVICE_NUM"
            )
        )
    return ids
