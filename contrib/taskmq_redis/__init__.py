"""Redis as the state of taskmq: `redis://`, `rediss://` (TLS) and `unix://`.

**Keys.** All stand under a prefix, `taskmq` unless the URL says `?prefix=`. Braces are hash tags, so a script finds
its keys in one slot of a Redis Cluster:

    taskmq:{JOB}:result            hash: state, record (MessagePack)              the result's time to live
    taskmq:{OCCURRENCE}:occurrence hash: owner, until, claim                      the occurrence's
    taskmq:{JOB}:starts            hash: begun, call                              renewed by each begin
    taskmq:{JOB}:progress          hash: attempt, started, record (MessagePack)   the result's
    taskmq:{JOB}:checkpoints       hash: token, attempt, and :NAME -> value       renewed by each begin and save
    taskmq:{revoked}:places        sorted set: JOB by when it was cancelled       the longest cancellation's
    taskmq:{revoked}:ends          sorted set: JOB by when that is forgotten      the same
    taskmq:{revoked}:reasons       hash: JOB -> reason                            the same
    taskmq:{schedules N}:NAME:record     string: version, record; N is one of 16, from the name   400 days
    taskmq:{schedules of APP}:definitions hash: NAME -> definition (JSON)          none, as delayed messages
    taskmq:{schedules of APP}:places     sorted set: NAME by its last change      none
    taskmq:{schedules of APP}:others     sorted set: NAME without a definition    none; a day in here
    taskmq:{delay}:messages        hash: JOB -> token, due, message (MessagePack) none, see below
    taskmq:{delay}:due             sorted set: JOB by its due instant             none
    taskmq:{delay}:taken           sorted set: JOB by the end of its lease        none

Delayed messages have no time to live: a job that was sent must not vanish. So the server must not evict keys
without one: `maxmemory-policy noeviction`, or a `volatile-` one. `RedisState.diagnose` looks at that.

A key's name is also the channel on which its change is published: a result that was put, a message that is due
earlier than all others.

**Connections.** A state object has one connection for commands and, once a caller waits or listens, one for the
channels (`PubSub`). Commands are gathered on the event loop while a batch is under way and sent together
(`Pipeline`), so thousands of calls share a few round trips, and cancelling a call never tears a reply apart. On a
Redis Cluster there is one more connection per node that was referred to (`Server`).

**Scripts.** Every change is one Lua script, so it happens whole or not at all, by the server's clock. They are called
by their hash; a server that has restarted or was flushed is sent the source again.

What happens when:

- The server is down, paused, or does not answer: a call ends with `StateUnavailable` at once when the connection is
  refused, within `timeout` seconds (`?timeout=`, 5 by default) otherwise. `is_certain` tells whether it may have been
  done all the same. What is safe to do twice is sent once more after a connection was lost.
- It comes back: the next call connects anew. Who waits for a result goes on waiting; once the channels are subscribed
  again everything is looked at again, so nothing that was published meanwhile is missed.
- A sentinel says where the primary is (`?sentinel=`): it is asked for each new connection, so after a failover the
  next call goes to the new primary. While the sentinels name none, or one that is no primary yet, calls fail at once.
- It loads its data, fails over, or moves slots (LOADING, TRYAGAIN, CLUSTERDOWN, MOVED, ASK): the call goes on to
  where it belongs, or tries again until its time is up. READONLY: the call fails and the next of the URL's hosts
  is tried.
- It is full (OOM): what adds is refused, nothing of it is done; taking, finishing and cancelling go on.
- It was emptied: results are unknown, occurrences may be emitted again, and delayed messages are gone. Redis is
  never the only truth of a job that the broker has confirmed; with `delay="state"` it is until the job is due.
- It failed over to a replica that lagged, or lost power: the last writes may be gone (`appendfsync always` and `WAIT`
  are the operator's).
"""

from taskmq_redis.state import RedisState, open_state

__all__ = ["RedisState", "open_state"]
