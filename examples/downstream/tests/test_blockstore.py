"""What the store keeps, and nothing about how: the rest is for the fixture ``dma`` to see."""

import asyncio

import pytest

from aiodocadma.exceptions import DocaError
from aiodocadma.testing import Fault, VirtualClock
from blockstore import BlockStore

BLOCKS = {f"block {i}": bytes([i]) * (1000 + i) for i in range(12)}


async def test_what_was_put_comes_back(store: BlockStore) -> None:
    await store.put("a", b"hello")
    assert await store.get("a") == b"hello"
    await store.put("a", b"good bye")
    assert await store.get("a") == b"good bye"
    with pytest.raises(KeyError):
        await store.get("b")


async def test_many_at_once(store: BlockStore) -> None:
    await asyncio.gather(*(store.put(key, data) for key, data in BLOCKS.items()))
    assert {key: await store.get(key) for key in BLOCKS} == BLOCKS


async def test_put_many(store: BlockStore) -> None:
    await store.put_many(BLOCKS)
    assert {key: await store.get(key) for key in BLOCKS} == BLOCKS


async def test_a_block_that_fails_harms_no_other(store: BlockStore, dma_faults) -> None:
    dma_faults(Fault("completion", skip=3))
    await store.put_many(BLOCKS)
    for key in list(BLOCKS)[4:]:
        assert await store.get(key) == BLOCKS[key]


@pytest.mark.doca_chaos(faults=20)
async def test_puts_that_fail_are_put_again(store: BlockStore) -> None:
    missing = BLOCKS
    while missing:
        failed = await store.put_many(missing)
        missing = {key: BLOCKS[key] for key in failed}
    for key in BLOCKS:
        while True:
            try:
                assert await store.get(key) == BLOCKS[key]
                break
            except DocaError:
                continue


async def test_blocks_expire(store: BlockStore) -> None:
    clock = VirtualClock()
    store.use_clock(clock)
    await store.put("old", b"1")
    clock.advance(3599)
    await store.put("young", b"2")
    assert await store.get("old") == b"1"
    clock.advance(2)
    await store.put("young", b"3")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await store.get("young") == b"3"
    with pytest.raises(KeyError):
        await store.get("old")


@pytest.mark.doca_sanitize
async def test_blocks_of_full_size(store: BlockStore) -> None:
    await store.put_many({key: data * 3 for key, data in BLOCKS.items()})
    assert await store.get("block 11") == BLOCKS["block 11"] * 3


async def test_the_other_side_reads_it(dma_pair) -> None:
    store = await BlockStore.open(dma_pair.host)
    await store.put_many(BLOCKS)
    for key in BLOCKS:
        assert await store.get_across(dma_pair.dpu, key) == BLOCKS[key]
    await store.close()


@pytest.mark.bluefield
async def test_on_a_card(store: BlockStore) -> None:
    await store.put_many(BLOCKS)
    assert {key: await store.get(key) for key in BLOCKS} == BLOCKS
