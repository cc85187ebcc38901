"""HBase's Thrift 2 interface: the definition that HBase ships, loaded as it is.

In: nothing. Out: its structs and its service, as one module. Always: loaded when it is first used, once in each process;
`thriftpy2` is needed from then on.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from viewkeeper.errors import StoreError

_DEFINITION = Path(__file__).with_name("hbase.thrift")


@cache
def thrift() -> Any:
    """The module with TGet, TPut and the others."""
    try:
        import thriftpy2
    except ImportError:
        raise StoreError(
            "HBase is reached with thriftpy2, which is missing", "pip install 'viewkeeper[hbase]'"
        ) from None
    return thriftpy2.load(str(_DEFINITION), module_name="viewkeeper_hbase_thrift")
