"""The CPU override: `cpu:-1` flips it for the process, a scope holds it for a thread or a task."""

from __future__ import annotations

import asyncio
import threading

import pytest

from torchdevice.policy.resolve import CpuOverride


def test_the_switch_flips_and_resets() -> None:
    override = CpuOverride()
    states = []
    for _ in range(3):
        override.flip()
        states.append(override.is_on())
    assert states == [True, False, True]
    override.reset()
    assert not override.is_on()


def test_scopes_nest_and_unwind_whatever_is_raised_or_flipped_inside() -> None:
    override = CpuOverride()

    def raises() -> None:
        with override.scope():
            with override.scope():
                override.flip()
                assert override.is_on()
            override.flip()
            assert override.is_on()
            raise KeyError

    with pytest.raises(KeyError):
        raises()
    assert not override.is_on()


def test_flips_of_many_threads_are_all_counted() -> None:
    override = CpuOverride()
    threads = [threading.Thread(target=lambda: [override.flip() for _ in range(1001)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not override.is_on()  # 8 × 1001 is even


def test_a_scope_belongs_to_its_thread_and_its_task() -> None:
    override = CpuOverride()
    seen: dict[str, bool] = {}

    async def inside(entered: asyncio.Event, left: asyncio.Event) -> None:
        with override.scope():
            entered.set()
            await left.wait()
            seen["task inside"] = override.is_on()

    async def main() -> None:
        entered, left = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(inside(entered, left))
        await entered.wait()
        seen["task outside"] = override.is_on()
        left.set()
        await task

    asyncio.run(main())
    with override.scope():
        thread = threading.Thread(target=lambda: seen.update(thread=override.is_on()))
        thread.start()
        thread.join()
    assert seen == {"task inside": True, "task outside": False, "thread": False}
