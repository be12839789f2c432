"""What one command line does, from opening the source to the report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from clawmem_cli import output
from clawmem_core import clock
from clawmem_core.errors import (
    ExistsError,
    MigrationMismatchError,
    PartialMigrationError,
    SourceRowsError,
    StorageError,
    UsageError,
)
from clawmem_core.model import StoreConfig
from clawmem_core.storage import fs
from clawmem_core.storage.paths import StorePaths
from clawmem_migrate import mapping, report
from clawmem_migrate.check import check, open_store
from clawmem_migrate.database import Database
from clawmem_migrate.importer import Effort, Source, create
from clawmem_migrate.incremental import COUNTS, check_dimension, update
from clawmem_migrate.inspect import describe
from clawmem_migrate.legacy import LegacyStore
from clawmem_migrate.options import parse
from clawmem_migrate.progress import Progress
from clawmem_migrate.refusals import Refusals
from clawmem_migrate.source import Plan, Reading, SqliteSource
from clawmem_migrate.validate import Validation


def run(words: Sequence[str]) -> int:
    """Do what a command line says; returns the exit code. Raises ClawmemError."""
    options = parse(words)
    output.quiet = options.quiet
    progress = Progress(options.verbose, options.quiet)
    try:
        if options.clawhdf5 is not None:
            return _legacy(options, progress)
        with Database(options.sqlite, options.lock_timeout) as database:
            if options.inspect:
                output.write(describe(database).encode("utf-8", "backslashreplace"))
                return 0
            return _sqlite(options, database, progress)
    finally:
        progress.finish()


def _mapping(options: argparse.Namespace) -> mapping.Mapping:
    found = mapping.from_file(options.map) if options.map else mapping.shipped(options.mapping or "clawhdf5")
    tables = {"records": options.chunks_table, "sessions": options.sessions_table,
              "entities": options.entities_table, "relations": options.relations_table}  # fmt: skip
    return found.with_tables(tables)


def _sqlite(options: argparse.Namespace, database: Database, progress: Progress) -> int:
    layout = _mapping(options)
    reading = Reading(not options.f32, options.embedding_dim, options.skip_deleted)
    head = {"source": {"path": options.sqlite, "kind": "sqlite", "mapping": layout.name}}
    if options.dry_run:
        return _dry_run(SqliteSource(database, layout, reading), head)
    if options.check:
        return _check(options, database, layout, head, progress)
    _refuse_same_file(options)
    if options.incremental and fs.lstat(options.hdf5) is not None:
        return _incremental(options, database, layout, head, progress)
    source = SqliteSource(database, layout, reading)
    head["source"]["not_carried"] = source.not_carried()
    return _create(options, source, head, progress, StoreConfig(agent_id="migrated"))


def _legacy(options: argparse.Namespace, progress: Progress) -> int:
    reading = Reading(not options.f32, None, options.skip_deleted)
    with LegacyStore(options.clawhdf5, reading) as source:
        for message in source.warnings:
            output.warning("legacy", message)
        check_dimension(options.embedding_dim, source.config.dim)
        head = {"source": {"path": options.clawhdf5, "kind": "clawhdf5"}}
        if options.dry_run:
            return _dry_run(source, head)
        _refuse_same_file(options)
        return _create(options, source, head, progress, source.config)


def _refuse_same_file(options: argparse.Namespace) -> None:
    source, dest = fs.stat(options.sqlite or options.clawhdf5), fs.stat(options.hdf5)
    if source is not None and dest is not None and os.path.samestat(source, dest):
        raise UsageError(detail="source and destination are the same file")


def _dry_run(source: SqliteSource | LegacyStore, head: dict[str, Any]) -> int:
    counts = source.counts()
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    report.write({"status": "dry-run", **head, "would_migrate": counts, "message": f"would migrate {words}"})
    return 0


# ---------------------------------------------------------------- checking the source


def _preflight(
    options: argparse.Namespace, source: Source, refusals: Refusals, progress: Progress, head: dict[str, Any]
) -> Plan:
    """Check every row; with problems and without --skip-invalid the report is printed and SourceRowsError raised."""
    progress.stage("check", 0)
    plan = source.preflight(refusals, progress.advance)
    refusals.commit()
    head["tables"] = report.tables(plan)
    if refusals.rows and (not options.skip_invalid or not plan.dim):
        progress.finish()
        report.write({"status": "refused", **head, "refused": refusals.rows}, refusals)
        raise SourceRowsError(refused=refusals.rows, path=source.path)
    return plan


def _finished(refusals: Refusals, source: Source) -> int:
    """The exit code of a run that made its output."""
    if refusals.rows:
        problem = PartialMigrationError(refused=refusals.rows, path=source.path)
        output.error(problem)
        return problem.exit
    return 0


def _mismatch(head: dict[str, Any], error: MigrationMismatchError, refusals: Refusals) -> None:
    """Report a validation that failed."""
    result: Validation = error.fields["validation"]
    report.write({"status": "dropped", **head, "validation": report.validation(result)}, refusals)


# ---------------------------------------------------------------- a new store


def _create(
    options: argparse.Namespace, source: Source, head: dict[str, Any], progress: Progress, base: StoreConfig
) -> int:
    paths = StorePaths(options.hdf5)
    _refuse_existing(paths)
    started = clock.monotonic()
    with Refusals(options.rejects) as refusals:
        plan = _preflight(options, source, refusals, progress, head)
        config = StoreConfig(
            agent_id=base.agent_id if options.agent_id is None else options.agent_id,
            embedder=base.embedder if options.embedder is None else options.embedder,
            dim=plan.dim, float16=not options.f32, created_at=base.created_at, compression=options.compression,
            compression_level=max(1, min(options.compression_level, 9)) if options.compression else 0,
        )  # fmt: skip
        effort = Effort(options.validate_full, options.lock_timeout, progress)
        try:
            result = create(source, plan, options.hdf5, config, effort)
        except MigrationMismatchError as error:
            progress.finish()
            _mismatch(head, error, refusals)
            raise
        progress.finish()
        counts = dict.fromkeys(COUNTS, 0)
        counts["added"] = plan.accepted
        report.write(
            {
                "status": "migrated", **_sides(head, result, options.hdf5),
                "records": {**counts, "left_out": plan.left_out, "refused": refusals.by_table.get("records", 0)},
                "dimension": {"value": plan.dim, "row": plan.dim_from},
                "validation": report.validation(result),
                "cost": report.cost(plan.accepted, clock.monotonic() - started),
            },
            refusals,
        )  # fmt: skip
        return _finished(refusals, source)


def _sides(head: dict[str, Any], result: Validation, dest: str) -> dict[str, Any]:
    """Source and store with the digests of their rows."""
    return {
        **head,
        "source": {**head["source"], "rows_sha256": result.source_sha256},
        "store": {"path": dest, "rows_sha256": result.stored_sha256},
    }


def _refuse_existing(paths: StorePaths) -> None:
    for path in (paths.real, paths.log):
        if fs.lstat(path) is not None:
            raise ExistsError(path=path, hint="--incremental brings a store up to date; --check compares")
    if not fs.is_directory(paths.directory):
        raise StorageError(path=paths.directory, detail="no such directory")


# ---------------------------------------------------------------- an existing store


def _incremental(
    options: argparse.Namespace, database: Database, layout: mapping.Mapping, head: dict[str, Any], progress: Progress
) -> int:
    from clawmem_core.integrity.signing import Signing
    from clawmem_core.writer import Writer

    started = clock.monotonic()
    key = options.signing_key or os.environ.get("CLAWMEM_SIGNING_KEY_FILE")
    signing = Signing.from_file(key) if key else None
    with Writer.open(options.hdf5, options.lock_timeout) as writer, Refusals(options.rejects) as refusals:
        if options.f32 and writer.float16:
            raise UsageError(detail=f"{options.hdf5} holds float16", hint="--f32 is decided when a store is made")
        check_dimension(options.embedding_dim, writer.header.dim)
        source = SqliteSource(database, layout, Reading(writer.float16, writer.header.dim, options.skip_deleted))
        head["source"]["not_carried"] = source.not_carried()
        plan = _preflight(options, source, refusals, progress, head)
        effort = Effort(options.validate_full, options.lock_timeout, progress)
        try:
            done, warnings = update(source, plan, writer, effort, signing)
        except MigrationMismatchError as error:
            progress.finish()
            _mismatch(head, error, refusals)
            raise
        progress.finish()
        for message in warnings:
            output.warning("checkpoint", message)
        changes = done.changes
        report.write(
            {
                "status": "updated" if changes.operations else "unchanged",
                **_sides(head, done.validation, options.hdf5),
                "records": {
                    **changes.counts, "left_out": plan.left_out, "refused": refusals.by_table.get("records", 0),
                    "not_in_source": changes.missing,
                },
                "dimension": {"value": plan.dim, "row": None},
                "validation": report.validation(done.validation),
                "cost": report.cost(plan.accepted, clock.monotonic() - started),
            },
            refusals,
        )  # fmt: skip
        return _finished(refusals, source)


def _check(
    options: argparse.Namespace, database: Database, layout: mapping.Mapping, head: dict[str, Any], progress: Progress
) -> int:
    started = clock.monotonic()
    with open_store(options.hdf5) as columns, Refusals(options.rejects) as refusals:
        check_dimension(options.embedding_dim, columns.config.dim)
        reading = Reading(columns.config.float16, columns.config.dim, options.skip_deleted)
        source = SqliteSource(database, layout, reading)
        options.skip_invalid, strict = True, not options.skip_invalid
        plan = _preflight(options, source, refusals, progress, head)
        progress.stage("compare", plan.accepted)
        result = check(source, plan, columns)
        source.confirm_unchanged()
        progress.finish()
        differs = result.differences.count + strict * refusals.rows
        report.write(
            {
                "status": "differs" if differs else "equal", **_sides(head, result, options.hdf5),
                "validation": report.validation(result),
                "cost": report.cost(plan.accepted, clock.monotonic() - started),
            },
            refusals,
        )  # fmt: skip
        if differs:
            raise MigrationMismatchError(
                path=options.hdf5, source=options.sqlite, differences=differs, outcome="nothing was changed"
            )
        return _finished(refusals, source)
