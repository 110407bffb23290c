"""Reading the MIT-BIH Arrhythmia Database for tests that want it."""

import numpy as np
import wfdb

BEATS = set("NLRBAaJSVrFejnE/fQ?")


def names(data_dir):
    return sorted(path.stem for path in (data_dir / "mitdb").glob("*.hea"))


def first_lead(data_dir, name):
    """Return the first lead in digital units, float32 of shape (n,)."""
    record = wfdb.rdrecord(str(data_dir / "mitdb" / name), channels=[0], physical=False)
    return record.d_signal[:, 0].astype(np.float32)


def reference(data_dir, name):
    """Return the samples of the annotated beats."""
    annotation = wfdb.rdann(str(data_dir / "mitdb" / name), "atr")
    return annotation.sample[np.isin(annotation.symbol, list(BEATS))]
