"""``python -m ecg_dask`` is ``ecg-dask``."""

from .cli import main

main()
