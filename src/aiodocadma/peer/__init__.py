"""
Rendezvous of two processes: one publishes memory maps under names, the other lists and imports them.

    async with peer.listen(dma, "unix:/run/app/memory.sock") as publisher:      # the host
        await publisher.publish("weights", memory)

    async with peer.connect(dma, "unix:/run/app/memory.sock") as session:       # the DPU, another process
        async with await session.import_memory("weights") as remote:
            await dma.copy(remote, destination)

It carries export descriptors, never data: that goes through the engine. It waits, up to a deadline, for a publisher
that is not there yet and for a name that is not published yet, so the order in which the sides start does not matter.
"""

from aiodocadma.peer._address import PeerAddress
from aiodocadma.peer._publisher import Publisher, listen
from aiodocadma.peer._session import Session, connect
from aiodocadma.peer._wire import PeerInfo, Publication

__all__ = ["PeerAddress", "PeerInfo", "Publication", "Publisher", "Session", "connect", "listen"]
