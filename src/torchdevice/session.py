"""Combines configuration, host, translator and patches into a session that can be started and ended.

One `Session` object holds the state of the process. The public functions of the package are its methods.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from typing import Any

from torchdevice import process, twins
from torchdevice._torch import compilers, core
from torchdevice.answers.asked import unanswered_names
from torchdevice.answers.counted import Counter, cpu_tensors
from torchdevice.answers.real import target_of
from torchdevice.answers.relief import Relief
from torchdevice.answers.scoped import Masquerades
from torchdevice.config import HAS_PARENT, VISIBLE_GPUS, Config, apply_to_children, resolve_config, without_settings
from torchdevice.distributed.points import Distributed
from torchdevice.environment import environment
from torchdevice.errors import AlreadyActive, ConfigError, TorchDeviceWarning, explain_error
from torchdevice.ledger import Redirect, Simulated, fallbacks, shortages, stand_ins
from torchdevice.notices import warn
from torchdevice.placement import Placement
from torchdevice.policy.dtypes import lacks_dtypes
from torchdevice.policy.hosts import Host, invent_host, is_untouched, target_host, this_host
from torchdevice.policy.resolve import Decision, parse, resolve
from torchdevice.process import collector_resting, refuse_without_global_lock
from torchdevice.reporting import log
from torchdevice.reporting.collect import Counts, Report, added
from torchdevice.reporting.destinations import REPORT
from torchdevice.reporting.spool import RUN
from torchdevice.translate import direct, imported, loading, subclasses
from torchdevice.translate.engine import Applied, Replacement, apply
from torchdevice.translate.operators import Kernels
from torchdevice.translate.points import Replacements, Skip, resolve_path
from torchdevice.translate.translator import Situation, Translator, translator


@dataclass(frozen=True)
class Status:
    """The state of translation in this process, as returned by `torchdevice.status()`.

    - `active`: whether translation is on.
    - `target`: the device type that requests go to, `policy`: the policy. Both are None while translation is off.
    - `sources`: the source of each setting: `"argument"`, the name of a variable, or `"default"`.
    - `placed`: the device that was chosen by free memory, with its memory then (`place="free"`), else None.
    - `override`: whether the CPU override is on, so that plain `cpu` requests get the CPU.
    - `patched`: the paths of the objects of torch that are currently replaced.
    - `skipped`: the rows that do not apply to this version of torch, with reasons.
    - `redirected_calls`, `redirected_places`: how many calls were redirected, and from how many lines of code.
    - `simulated_calls`: how many calls about a missing device were answered.
    - `lost`: what the last `deactivate()` did not restore, because other code had replaced it in the meantime.
    """

    active: bool
    target: str | None
    policy: str | None
    sources: Mapping[str, str]
    placed: str | None
    override: bool
    patched: tuple[str, ...]
    skipped: tuple[Skip, ...]
    redirected_calls: int
    redirected_places: int
    simulated_calls: int
    lost: tuple[str, ...]

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Names of torch._C that this torch uses and TorchDevice does not know. The first access takes a second."""
        return unanswered_names()


class Session:
    """The translation of this process. At most one is active at a time."""

    def __init__(self, running: Translator) -> None:
        self._translator = running
        self._replacements = Replacements(running)
        self._kernels = Kernels(running)
        self._lock = threading.RLock()
        self._config: Config | None = None
        self._applied: Applied | None = None
        self._stack = ExitStack()  # the undo steps of everything that is switched on
        self._lost: tuple[str, ...] = ()
        self._silent: bool | None = None  # about the first redirection
        self._masked: Masquerades | None = None
        self._relief: Relief | None = None
        self._placement: Placement | None = None
        self._distributed: Distributed | None = None
        self._builtins_registered = False
        self._twins: list[tuple[Callable[..., Any], Callable[..., Any]]] = []

    @property
    def active(self) -> bool:
        """Whether translation is on."""
        return self._applied is not None

    def activate(
        self,
        target: str | None = None,
        policy: str | None = None,
        packages: bool | None = None,
        on_oom: str | None = None,
        place: str | None = None,
    ) -> None:
        """Start translation in this process and in its child processes.

        - `target`: the device type to compute on, such as `"cpu"` or `"mps"`. None: the accelerator of this machine, or
          the CPU if there is none. A missing device raises `TargetUnavailable`.
        - `policy`: `"accelerate"` or `"portable"`, which requests are redirected.
        - `packages`: whether imports of packages with their own CUDA kernels, such as `flash_attn`, find a stand-in.
        - `on_oom`: if the target is out of memory: `"retry"` (default) frees memory and tries once more, `"cpu"` then
          uses the CPU where this gives the same result, `"raise"` raises the error at once.
        - `place`: the device for requests without an index if there are several: `"current"` (default) is torch's
          current device, `"free"` the one with the most free memory at the first use.

        An argument that is None is read from the environment at the time of the call. An invalid value raises
        `ConfigError`. A second call with the same settings does nothing; with other settings it raises `AlreadyActive`.
        """
        config = resolve_config(target=target, policy=policy, packages=packages, on_oom=on_oom, place=place)
        refuse_without_global_lock()
        with self._lock:
            if self._config is not None:
                self._check_same(config)
                return
            if config.enabled:
                self._start(config)

    def deactivate(self) -> None:
        """End translation and restore every original object of torch. Does nothing if translation is off."""
        with self._lock:
            if self._config is not None:
                self._stop()

    def _start(self, config: Config) -> None:
        host = target_host(config.target, config.source("target"))
        if self._silent is None:
            self._silent = _is_told_elsewhere()
        machine = this_host() if config.target == "cpu" else host  # before anything answers for it
        core.default_device_functions()
        subclasses.notice(active=False)
        with collector_resting(), ExitStack() as stack:  # torch is never left half patched
            core.weights_only_cache_clear()
            stack.callback(core.weights_only_cache_clear)  # last: entries cached before may hold our wrappers
            self._replace(config, host)
            stack.callback(self._restore)
            tries_again, on_cpu = config.on_oom != "raise", config.on_oom == "cpu"
            self._relief = Relief(self._translator, target_of(host), on_cpu) if tries_again else None
            for undo in self._steps(config, host):
                stack.callback(undo)
            stack.callback(direct.apply(self._translator, (host.type, machine.type)))
            self._translator.start(self._situation(config, host))
            stack.callback(self._translator.stop)
            twins.situation = repr((host, config.policy, config.float64))
            self._stack = stack.pop_all()
            self._config = config

    def _situation(self, config: Config, host: Host) -> Situation:
        look_again = functools.partial(self._look_again, os.environ.get(VISIBLE_GPUS))
        return Situation(
            host,
            config.policy,
            config.float64,
            self._masquerades().ordered if config.masquerade else {},
            self._masquerades().failure_of if config.masquerade else None,
            self._relief if self._relief is not None and not _asks_itself(host) else None,
            mps_workarounds=config.mps_workarounds,
            at_first_decision=look_again if is_untouched(host) else None,
            at_first_redirect=process.say_lost if host.lost else self._tell_first,
        )

    def _tell_first(self, record: Redirect) -> None:
        if not self._silent:
            self._silent = True
            log.first_redirected(record)

    def _look_again(self, visible: str | None) -> None:
        """Detect the host again, because a script may choose its GPUs, or none, until it uses one."""
        with self._lock:
            config = self._config
            if config is not None and os.environ.get(VISIBLE_GPUS) != visible:
                self._stop()
                self._start(config)

    def _replace(self, config: Config, host: Host) -> None:
        """Apply everything that a host needs, or nothing if a step fails. The translator decides about requests."""
        filling = Situation(host, config.policy).fills
        replacements = [*self._replacements.select(filling, lacks_dtypes(host.type), not host.accelerated)]
        if config.masquerade:
            replacements += self._masquerades().select(host, config.device_count)
            replacements += self._process_groups().select(host, config.device_count)
        self._applied = apply([*replacements, *_worker_replacement(config)])

    def _restore(self) -> None:
        assert self._applied is not None
        self._lost = self._applied.undo()
        self._applied = None

    def _steps(self, config: Config, host: Host) -> Iterator[Callable[[], object]]:
        """The steps beside the replacements. Each step yields its undo."""
        assert self._applied is not None
        yield imported.rebind(self._applied).undo
        if config.masquerade:
            masked, groups = self._masquerades(), self._process_groups()
            yield from masked.apply()
            yield from groups.apply()
        yield from loading.apply_when_imported(self._translator)
        yield self._kernels.apply()
        self._register_builtins()
        yield compilers.when_dynamo_is_imported(self._register_twins)
        yield compilers.when_dynamo_is_imported(compilers.leave_untraced)
        if not host.accelerated:
            yield compilers.when_dynamo_is_imported(compilers.ask_for_streams_of_the_accelerator)
        yield log.apply(config)
        log.activated(config, host.type, len(self._applied.paths))
        yield _entered(self._translator.ledger.listening(log.redirected))
        if config.masquerade:
            yield _entered(self._masquerades().audience.ledger.listening(log.answered))
        if config.packages:
            yield from _stand_ins(host)
            yield _entered(stand_ins.listening(log.stood_in))
        if self._relief is not None:
            yield from _relieved(self._relief, host)
            yield _entered(shortages.listening(log.relieved))
        if config.place == "free":
            if self._placement is None or self._placement.host != host:
                self._placement = Placement(host)  # kept over activations: a process chooses once
            yield self._placement.apply()
        yield apply_to_children(config, host.type)
        if host.accelerated:
            yield _covered(config, host)

    def _masquerades(self) -> Masquerades:
        """The replacements for the namespaces of missing devices. The first activation builds them."""
        if self._masked is None:
            self._masked = Masquerades(self._translator)
        return self._masked

    def _process_groups(self) -> Distributed:
        """torch.distributed on the available backends; built by the first activation."""
        if self._distributed is None:
            self._distributed = Distributed(self._translator, self._masquerades().audience, _note_staged)
        return self._distributed

    def _stop(self) -> None:
        self._config = None
        self._stack.close()  # undoes all steps, even if one fails
        if self._lost:
            lost = ", ".join(self._lost)
            warn(f"torchdevice: {lost} was replaced by other code in the meantime and was not restored", stacklevel=3)

    def _register_builtins(self) -> None:
        if not self._builtins_registered:
            self._builtins_registered = True
            for wrapper, original in self._replacements.wrapped_builtins():
                compilers.register_script_builtin(wrapper, original)

    def _register_twins(self) -> Callable[[], object]:
        """Tell torch's compiler about the replacements."""
        fresh = [] if self._twins else [*self._replacements.traced_twins()]
        if self._masked is not None:
            fresh += self._masked.audience.traced_twins()
        self._twins += [(wrapper, original) for wrapper, original, _ in fresh]
        truthful, answered = [], []
        if self._masked is not None:  # a graph is code of torch
            truthful, answered = self._masked.audience.truthful, self._masked.audience.answered
        rules = compilers.Rules(
            moved=[*self._twins, *truthful],
            kept=[*self._replacements.kept_in_graphs()],
            nodes=answered,
            traced=[*self._replacements.traced()],
            # A default device is a mode. It receives originals, and would compare them with wrappers.
            instead={core.LIST_DEFAULT_DEVICE_FUNCTIONS: twins.set_of(core.default_device_functions())},
        )
        return compilers.apply_rules(rules, fresh)

    def _check_same(self, config: Config) -> None:
        running = self._config
        assert running is not None
        asked = replace(config, target=target_host(config.target, config.source("target")).type)
        there = replace(running, target=self._translator.host.type)
        others = asked.differences(there)
        if config.enabled and others:
            raise AlreadyActive(
                explain_error(
                    f"activation with {', '.join(f'{name}={getattr(asked, name)!r}' for name in others)} was requested",
                    "translation is already active with "
                    + ", ".join(f"{name}={getattr(there, name)!r} ({running.source(name)})" for name in others),
                    "call torchdevice.deactivate() first, or use `with torchdevice.redirect(...)`",
                )
            )

    def redirect(self, target: str | None = None, policy: str | None = None) -> AbstractContextManager[None]:
        """Translate inside a `with` block or a decorated function; afterwards the state before it is restored.

        `target` and `policy` are those of `activate`. It may be nested, and used while translation is on.
        """
        return _Redirected(self, target, policy)

    @contextmanager
    def _redirected(self, target: str | None, policy: str | None) -> Iterator[None]:
        config = resolve_config(target=target, policy=policy)
        refuse_without_global_lock()
        if not config.enabled:
            yield
            return
        with self._lock:
            before = self._config
            if before is not None:
                self._stop()
            try:
                self._start(config)
            except BaseException:
                if before is not None:
                    self._start(before)
                raise
        try:
            yield
        finally:
            with self._lock:
                if self._config is not None:
                    self._stop()
                if before is not None:
                    self._start(before)

    def suspended(self) -> AbstractContextManager[None]:
        """Do not translate device requests inside a `with` block, in this thread and asyncio task only."""
        return self._translator.suspended()

    def cpu_override(self) -> AbstractContextManager[None]:
        """Let plain `cpu` requests get the CPU inside a `with` block, in this thread and asyncio task only.

        It may be nested. Without it the policy `accelerate` sends `cpu` to the accelerator.
        """
        return self._translator.override.scope()

    def status(self) -> Status:
        """Return the settings in force and their sources, what is patched and skipped, and the counts."""
        totals = self._translator.ledger.totals()
        config = self._config
        return Status(
            active=self.active,
            target=self._translator.host.type if config else None,
            policy=config.policy if config else None,
            sources=config.all_sources() if config else {},
            placed=self._placed() if config and config.place == "free" else None,
            override=self._translator.override.is_on(),
            patched=self._applied.paths if self._applied else (),
            skipped=(*self._replacements.skips, *(self._masked.skips if self._masked is not None else ())),
            redirected_calls=sum(totals.values()),
            redirected_places=len({record.site for record in totals}),
            simulated_calls=sum(self.simulated().values()),
            lost=self._lost,
        )

    def _placed(self) -> str | None:
        chosen = self._placement.chosen if self._placement is not None else None
        return None if chosen is None else str(chosen)

    def counts(self) -> Counts:
        """Everything that was counted in this process so far."""
        with suppress(TorchDeviceWarning):  # `python -W error`: the record exists even if the warning raises
            self._translator.aliases.look(self._translator)
        records = added(self._translator.ledger.totals(), self.simulated(), stand_ins.totals(), shortages.totals())
        return Counts(records, fallbacks.measured())

    def report(self) -> Report:
        """Return what was redirected so far (API, from → to, count, first place) and which operators fell back.

        `print(torchdevice.report())` prints it as a table. Counts continue over several activations in one process.
        """
        return Report.of_counts(self.counts())

    def simulated(self) -> dict[Simulated, int]:
        """The calls about missing devices answered so far: each place with its number of calls."""
        return self._masked.audience.ledger.totals() if self._masked is not None else {}

    def original(self, path: str) -> Any:
        """Return torch's own object at `path`, such as `"torch.zeros"`, whether or not it is currently patched."""
        if self._applied is not None and path in self._applied.originals:
            return self._applied.originals[path]
        return resolve_path(path)

    def is_patched(self, path: str) -> bool:
        """Return whether the object at `path`, such as `"torch.zeros"`, is currently replaced."""
        return self._applied is not None and path in self._applied.originals

    def confine_to_cpu(self, config: Config) -> None:
        """In a worker of a DataLoader: translate, but to the CPU, because the accelerator belongs to the parent.

        A request for a device that this process can use, and whose tensors it can send, is left alone.
        """
        named = _sendable(this_host().type)
        with self._lock:
            self._silent = True
            if self._config is None:
                self.activate(target=named or "cpu", policy=config.policy, packages=config.packages)
            host = Host("cpu", named=named)
            now = self._translator.situation
            self._translator.start(replace(now, host=host, at_first_decision=None, at_first_redirect=None))

    def _in_forked_child(self) -> None:
        """Keep a child that cannot use its parent's accelerator on the CPU.

        Only Python objects are replaced, because threads that no longer exist may hold locks of torch's dispatcher.
        """
        lost = self._translator.host.type
        if self._config is None or self._applied is None or not core.lost_by_fork(lost):
            return
        about_cuda = lost == "cuda" and not self.simulated() and not self._translator.has_asked_beyond(lost)
        if about_cuda and core.forked_as_worker():
            return  # `confine_to_cpu` runs at its start, and torch.cuda is not replaced
        host = Host("cpu", lost=lost)
        self._applied.undo()
        self._replace(self._config, host)
        self._translator.start(self._situation(self._config, host))


class _Redirected(ContextDecorator, AbstractContextManager[None]):
    """`redirect(...)` as a reentrant context manager and as a decorator."""

    def __init__(self, session: Session, target: str | None, policy: str | None) -> None:
        self._open = functools.partial(session._redirected, target, policy)
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        context = self._open()
        context.__enter__()
        self._entered.append(context)

    def __exit__(self, *exception: Any) -> None:
        self._entered.pop().__exit__(*exception)


if "session" not in globals():  # else this module is reloaded: the active session is kept
    session = Session(translator)
    process.guard(session._lock, session._in_forked_child)


def explain(
    request: object = None, host: str | Host | None = None, policy: str | None = None, override: bool = False
) -> Decision:
    """Return what a device request becomes on a machine, and why. Changes nothing.

    - `request`: as code writes it: `"cuda:1"`, a `torch.device`, a number, or None for no device.
    - `host`: a hypothetical machine, such as `"mps"` or `"cuda:4"` (four devices). None: this machine.
    - `policy`: `"accelerate"` or `"portable"`. None: the one that the environment sets, else `"accelerate"`.
    - `override`: whether to assume that the CPU override is on.
    """
    config = resolve_config(policy=policy)
    machine = this_host() if host is None else invent_host(host)
    return resolve(parse(request), machine, config.policy, override)


def activate_or_warn() -> None:
    """For `import TorchDevice`: a bad setting must not break an import, so it leads to a warning and the default."""
    try:
        session.activate()
    except AlreadyActive as error:  # the active session continues
        warn(f"torchdevice: {error}", level=logging.ERROR, stacklevel=2)
    except ConfigError as error:
        warn(f"torchdevice: {error}", level=logging.ERROR, stacklevel=2)
        with without_settings():
            session.activate()


def _is_told_elsewhere() -> bool:
    """Whether a report at the end, or another process of the same program, tells of redirections."""
    rank = os.environ.get("RANK")
    is_another = HAS_PARENT in environment() if rank is None else rank != "0"
    return is_another or RUN in environment() or bool(environment().get(REPORT))


def _entered(context: AbstractContextManager[object]) -> Callable[[], object]:
    """Enter a context. Returns its exit as the undo."""
    stack = ExitStack()
    stack.enter_context(context)
    return stack.close


def _stand_ins(host: Host) -> Iterator[Callable[[], object]]:
    """Make packages with their own CUDA kernels importable. Each step yields its undo."""
    from torchdevice import virtual
    from torchdevice.packages import finder  # few sessions need it

    yield from finder.engage()
    if PathFinder.find_spec("triton") is not None and (host.type != "cuda" or virtual.installed() is not None):
        from torchdevice.packages import triton_interpreter

        yield from triton_interpreter.engage(host.type)


def _asks_itself(host: Host) -> bool:
    """Whether the allocator of the target asks for relief at every allocation: a virtual device's does."""
    return host.type in core.virtual_types


def _relieved(relief: Relief, host: Host) -> Iterator[Callable[[], object]]:
    """Let our own allocators ask for memory before they raise an error. Each step yields its undo."""
    if not host.accelerated:
        cpu_tensors.relieve_by(relief.asked_by_counter)
        yield lambda: cpu_tensors.relieve_by(None)
    if _asks_itself(host):
        from torchdevice import virtual  # only a host with an accelerator needs it

        there = virtual.installed()
        assert there is not None
        there.library.set_relief(relief.asked)
        yield lambda: there.library.set_relief(None)


def _covered(config: Config, host: Host) -> Callable[[], None]:
    """Install fallbacks for operators that the target lacks. Returns the undo."""
    from torchdevice import fallback, virtual  # only a host with an accelerator needs them

    there = virtual.installed()
    refused = there.refused if there is not None and there.device == host.type else frozenset()
    undo = fallback.engage(
        host.type,
        config.fallback,
        config.source("fallback"),
        refused,
        log.Fallbacks().fell_back,
        avoids_wrong_values=config.mps_workarounds,
    )
    if there is None or config.fallback != "off":
        return undo
    there.library.call("allow_host", 0)  # for operators that the backing of a virtual device lacks

    def end() -> None:
        there.library.call("allow_host", 1)
        undo()

    return end


def _note_staged(operator: str, dtypes: tuple[str, ...], seconds: float, moved: int) -> None:
    from torchdevice.fallback import route  # loaded already: only a host with an accelerator stages

    route.note(operator, "cpu", "gloo can only use CPU memory", dtypes, seconds, moved)


def _worker_replacement(config: Config) -> Iterator[Replacement]:
    """Start DataLoader workers through our entry, also spawned ones, which do not inherit this session."""
    owner, name = core.WORKER_LOOP.rsplit(".", 1)
    entry = functools.partial(_worker_entry, config)
    yield Replacement(core.WORKER_LOOP, resolve_path(owner), name, entry)


def _worker_entry(config: Config, *args: Any, **kwargs: Any) -> Any:
    session.confine_to_cpu(config)
    return core.worker_loop(*args, **kwargs)


def _sendable(kind: str) -> str:
    """The type, if a process can send its tensors to another one: torch can do that for `cuda` only."""
    if kind != "cuda":
        return ""
    from torchdevice import virtual  # only a host with CUDA needs it

    there = virtual.installed()
    return kind if there is None or there.on == "cpu" else ""


def _count_cpu_memory(build_it: bool) -> Counter | None:
    from torchdevice.virtual import cpu_memory  # imported here, because it imports the build code

    return cpu_memory.start(build_it)


cpu_tensors.count_by(_count_cpu_memory)

activate = session.activate
deactivate = session.deactivate
redirect = session.redirect
suspended = session.suspended
cpu_override = session.cpu_override
status = session.status
report = session.report
is_patched = session.is_patched
original = session.original


def is_active() -> bool:
    """Return whether translation is on in this process."""
    return session.active
