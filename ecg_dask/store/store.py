"""The store: things by name in the memory of a cluster's workers."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import dask
import dask.dataframe as dd
import pandas as pd
from dask.utils import format_bytes, parse_bytes
from distributed.client import futures_of

from ..beats import Beats
from ..errors import InputError
from ..recording import Recording
from ..stages.recipe import RECIPE
from . import disk
from .catalogue import Catalogue, Settings, taken
from .entry import DISK, GONE, MEMORY, Entry, new_id, now, this_program
from .kinds import MODEL, device_of, keep, kind_of, rate_of, schema_of
from .waiting import wait_for

if TYPE_CHECKING:
    from distributed import Client

    from ..anomaly import Model

    Thing: TypeAlias = Recording | Beats | dd.DataFrame | Model

#: What a name may consist of: it is also a table in SQL and a folder of a snapshot.
_NAME = re.compile(r"[A-Za-z0-9_][-\w.]{0,99}", re.ASCII)


class Store:
    """Recordings, beats, tables and models by name, in the memory of a cluster's workers.

    A process puts something, ends, and another gets it by its name, on the workers that hold it;
    nothing moves. What is put is computed and kept with all that it takes to compute it again, so
    that it outlives a worker. Names, and what is set here, are the scheduler's: all processes that
    connect to it see the same.

    Parameters
    ----------
    client
        Client of the cluster, as `connect` returns it.
    limit
        Most bytes of all names in the workers' memory, or text such as ``"40 GiB"``. What was used
        least recently is written to `folder` when a name goes beyond, and read back when it is got.
    ttl_s
        Seconds after which what is put from now on goes by itself.
    folder
        Folder for what is beyond `limit`, on a file system that all workers see.

    Each of the last three that is given holds for all processes from now on; what is not given
    stays as it is. At first there is no limit and nothing goes.

    Raises
    ------
    InputError
        When a limit is no size, or has no folder.
    """

    def __init__(
        self,
        client: Client,
        *,
        limit: int | str | None = None,
        ttl_s: float | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._client = client
        self._catalogue = Catalogue(client)
        self._got: dict[str, str] = {}
        given = {
            "limit": None if limit is None else _bytes(limit),
            "ttl_s": None if ttl_s is None else _seconds(ttl_s),
            "folder": None if folder is None else os.path.abspath(folder),
        }
        changes: dict[str, Any] = {
            name: value for name, value in given.items() if value is not None
        }
        if changes:
            settings = replace(self._catalogue.settings(), **changes)
            if settings.limit is not None and settings.folder is None:
                raise InputError(
                    "limit",
                    format_bytes(settings.limit),
                    "a limit together with a folder",
                    "Name a folder that all workers see, for what is beyond the limit",
                )
            self._catalogue.set(settings)

    @property
    def settings(self) -> Settings:
        """What is set, for all processes."""
        return self._catalogue.settings()

    def put(
        self,
        name: str,
        value: Thing | pd.DataFrame,
        *,
        overwrite: bool = False,
        parameters: Mapping[str, Any] | None = None,
        made_from: Sequence[str] | None = None,
        made_by: str | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Compute something on the workers and keep it there under a name.

        It returns when all is there, so that the process may end.

        Parameters
        ----------
        name
            Up to 100 letters, digits, ``_``, ``-`` and ``.``; the last two not at its beginning.
        value
            A `Recording`, `Beats`, a dask.dataframe, a `Model`, or a small pandas table. Functions
            of modules that belong to this program travel along.
        overwrite
            Replace what is there under the name.
        parameters
            What it was made with, for those who look at it.
        made_from
            Names that it was made from; those that this store got before when not given.
        made_by
            Who made it; user, machine and program when not given.
        recipe
            By what a later run of the same step finds it up to date; the environment variable
            ``ECG_DASK_RECIPE``, as ``ecg-dask stage run`` sets it, when not given.

        Returns
        -------
        Entry
            What is known of it now.

        Raises
        ------
        InputError
            When the name is taken or no name, the value is nothing that can be put, or the cluster
            has no workers. Also what computing it raises.
        """
        kind = kind_of(name, value)
        before, settings = self._place(name, overwrite)
        if recipe is None and RECIPE in os.environ:
            recipe = json.loads(os.environ[RECIPE])
        known = self._got if made_from is None else {one: self.entry(one).id for one in made_from}
        kept = keep(name, kind, value)
        ttl_s, n_bytes = settings.ttl_s, wait_for(self._client, kept.held, f"value of {name}")
        created = now()
        entry = Entry(
            name=name,
            id=new_id(),
            kind=kind,
            schema=schema_of(value if kind == MODEL else kept.value),
            fs=rate_of(value),
            parameters=dict(parameters or {}),
            n_bytes=n_bytes,
            made_by=made_by or this_program(),
            made_from=dict(known),
            created=created,
            used=created,
            expires=None if ttl_s is None else now(ttl_s),
            recipe=recipe,
            device=device_of(kept.value),
        )
        self._catalogue.publish(entry, kept.value, kept.held, before=before)
        if ttl_s is not None:
            self._catalogue.let_expire(entry, ttl_s)
        self._make_room(settings, but=entry)
        return entry

    def get(self, name: str) -> Any:
        """Return what is there under a name; its data stays where it is.

        What was written to files is read back by the workers. Of a model the weights come here.

        Raises
        ------
        InputError
            When there is no such name, or its data is gone.
        """
        entry, value = self._held(name)
        self._got[name] = entry.id
        if entry.kind == MODEL:
            (future,) = futures_of(value)
            wait_for(self._client, [value], f"name {name}")
            return future.result()
        return value

    def list(self) -> Sequence[Entry]:
        """Return what is known of all names, oldest first."""
        return self._catalogue.entries()

    def entry(self, name: str) -> Entry:
        """Return what is known of a name.

        Raises
        ------
        InputError
            When there is no such name.
        """
        return self._catalogue.entry(name)

    def drop(self, name: str) -> None:
        """Forget a name; its memory is free when no process and no task uses it any more.

        Raises
        ------
        InputError
            When there is no such name.
        """
        self._catalogue.drop(self.entry(name))
        self._make_room(self.settings)

    def share(self, name: str, *, hold_s: float = 60.0) -> dict[str, Any]:
        """Offer a name's data to processes outside Dask on the workers' machine.

        Such a process maps it with ``ecg_dask.share.attach(descriptor)``: from GPU memory by CUDA
        IPC without any copy, on the same GPU; from the host's through POSIX shared memory, into
        which the worker copies it once.

        Parameters
        ----------
        name
            A recording, beats or a table.
        hold_s
            Seconds for which the workers keep the offer while nobody reads it. While somebody does
            they keep it in any case, also when the name is dropped.

        Returns
        -------
        dict
            The descriptor, which JSON can express.

        Raises
        ------
        InputError
            When the name cannot be shared, or a worker cannot offer it.
        """
        from ..share import describe
        from .sharing import offered

        entry, value = self._held(name)
        pieces = offered(self._client, name, value, hold_s)
        about = {"id": entry.id, "schema": dict(entry.schema)}
        return describe(name, entry.kind, pieces, fs=entry.fs, info=about)

    def sql(
        self,
        query: str,
        *,
        out: str | None = None,
        overwrite: bool = False,
        engine: str = "auto",
        recipe: Mapping[str, Any] | None = None,
    ) -> dd.DataFrame:
        """Answer an SQL query over tables by name; beats are their table.

        One worker answers, the one that holds most of what the query reads; the rest of it goes
        there. The answer stays on it until it is computed.

        Parameters
        ----------
        query
            A SELECT in Polars' dialect.
        out
            Name to put the answer under; None for none.
        overwrite
            Replace what is there under `out`.
        engine
            ``"gpu"``, ``"cpu"``, or ``"auto"``: the GPU where the tables are in its memory and
            cudf-polars is installed. The entry of `out` tells which it was.
        recipe
            Of the entry of `out`, as for `put`.

        Returns
        -------
        dask.dataframe.DataFrame
            One partition, of pandas or cuDF as the tables are.

        Raises
        ------
        InputError
            When the query cannot be answered: what the engine says, and all names and columns.
        """
        from .querying import names_of, schemas_of, table_of, task_of, told_of

        if out is not None:
            self.check_free(out, overwrite=overwrite)
        schemas = schemas_of(self.list())
        names = names_of(query, schemas)
        from ..sql import ERRORS, refused

        values = {name: self._held(name)[1] for name in names}
        answer = task_of(query, values, engine)
        answer, told = dask.persist(answer, told_of(answer))
        try:
            wait_for(self._client, [answer, told], "query")
            engine, meta = told.compute()
        except ERRORS as error:
            raise refused(error, schemas) from error
        rows = table_of(answer, meta)
        if out is not None:
            about = {"query": query, "engine": engine}
            self.put(
                out, rows, overwrite=overwrite, parameters=about, made_from=names, recipe=recipe
            )
        return rows

    def snapshot(self, folder: str | os.PathLike[str]) -> Sequence[Entry]:
        """Write all names to a folder, from which `restore` brings them back.

        Parameters
        ----------
        folder
            Folder on a file system that all workers see. A name that it holds is replaced.

        Returns
        -------
        sequence of Entry
            What was written.

        Raises
        ------
        InputError
            When a worker cannot write there, or the data of a name is gone.
        """
        entries = self.list()
        for entry in entries:
            _, value = self._held(entry.name)
            self._write(entry, value, Path(os.path.abspath(folder)) / entry.name)
        return entries

    def restore(
        self, folder: str | os.PathLike[str], *, overwrite: bool = False
    ) -> Sequence[Entry]:
        """Bring back the names of a snapshot. Their data is read when they are got.

        Parameters
        ----------
        folder
            Folder that `snapshot` wrote.
        overwrite
            Replace names that are there.

        Returns
        -------
        sequence of Entry
            What was brought back.

        Raises
        ------
        InputError
            When there is no snapshot, it cannot be read, or one of its names is there already.
        """
        places = disk.folders(Path(os.path.abspath(folder)))
        # Their time begins anew, and without an end.
        entries = [replace(disk.entry_in(place), expires=None) for place in places]
        # Names that are taken are refused before the first is brought back.
        before = [self._place(entry.name, overwrite)[0] for entry in entries]
        for entry, place, there in zip(entries, places, before, strict=True):
            self._catalogue.publish(entry, str(place), [], before=there)
        return entries

    def check_free(self, name: str, *, overwrite: bool = False) -> None:
        """Refuse what `put` would refuse as a name, before there is anything to put.

        Raises
        ------
        InputError
            When it is no name, or taken and not to be overwritten.
        """
        self._place(name, overwrite)

    def _place(self, name: str, overwrite: bool) -> tuple[Entry | None, Settings]:
        """Return what may be replaced under a name, and the settings.

        Refuses what is no name, and a name that is taken.
        """
        _check_name(name)
        before, settings = self._catalogue.find(name)
        if before is not None and not overwrite:
            raise taken(before)
        return before, settings

    def _held(self, name: str) -> tuple[Entry, Any]:
        """Return a thing that is on the workers, read back where it was not."""
        entry, settings, has_workers = self._catalogue.look(name)
        if not has_workers:
            raise InputError(
                f"name {name}",
                "a cluster without workers",
                "one worker or more",
                "Start workers (dask worker, dask cuda worker), then get it again",
            )
        if entry.state == GONE:
            raise InputError(
                f"name {name}",
                "a name whose data is gone, since the workers were restarted",
                "names whose data the workers hold or can compute again",
                "Put it anew by the step that made it, restore a snapshot over it "
                "(overwrite=True), or drop it",
            )
        value = self._catalogue.value(entry)
        if entry.state == DISK:
            kept = keep(name, entry.kind, disk.read(Path(value)))
            n_bytes = wait_for(self._client, kept.held, f"name {name}")
            entry = replace(entry, state=MEMORY, n_bytes=n_bytes, used=now())
            self._catalogue.publish(entry, kept.value, kept.held, before=entry)
            self._make_room(settings, but=entry)
            return entry, kept.value
        if settings.limit is not None:
            # Which was used least recently matters only then.
            self._catalogue.change(replace(entry, used=now()))
        return entry, value

    def _make_room(self, settings: Settings, *, but: Entry | None = None) -> None:
        """Write names to files, the one first that was not used for longest, until all fit."""
        if settings.limit is None or settings.folder is None or not self._catalogue.has_workers():
            return
        entries = self.list()
        # A folder a scheduler, for names are a scheduler's.
        spilled = Path(settings.folder) / str(self._client.scheduler_info()["id"])
        written = disk.sweep(spilled, [_folder_of(entry) for entry in entries])
        there = [entry for entry in entries if entry.state == MEMORY]
        in_memory = sum(entry.n_bytes for entry in there)
        for entry in sorted(there, key=lambda entry: entry.used):
            # A model is small, and what is in use now would only be read back.
            if in_memory <= settings.limit or entry.kind == MODEL or (but and entry.id == but.id):
                continue
            place = spilled / _folder_of(entry)
            # What was read back has its files still: they are what it would be computed from.
            if place.name not in written:
                self._write(entry, self._catalogue.value(entry), place)
            self._catalogue.publish(replace(entry, state=DISK), str(place), [], before=entry)
            in_memory -= entry.n_bytes

    def _write(self, entry: Entry, value: Any, folder: Path) -> None:
        """Write a thing to a folder, by the workers that hold it."""
        kept = dask.persist(*disk.write(entry, value, folder))
        wait_for(self._client, list(kept), f"folder {folder}")


def _folder_of(entry: Entry) -> str:
    return f"{entry.name}-{entry.id}"


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "name",
            repr(name),
            "up to 100 letters, digits, _, - and ., the last two not at its beginning",
            "Choose another name",
        )


def _bytes(limit: int | str) -> int:
    try:
        n_bytes = int(parse_bytes(limit))
    except (TypeError, ValueError):
        n_bytes = -1
    if n_bytes < 0:
        raise InputError(
            "limit", repr(limit), 'bytes, or text such as "40 GiB"', "Give one of these"
        )
    return n_bytes


def _seconds(ttl_s: float) -> float:
    if not 0 < ttl_s < math.inf:
        raise InputError("ttl_s", repr(ttl_s), "seconds above 0", "Give a number of seconds")
    return ttl_s
