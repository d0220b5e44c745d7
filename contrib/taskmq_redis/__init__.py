"""Redis as the state of taskmq: `redis://`, `rediss://` (TLS) and `unix://`.

**Keys.** All keys have a prefix, `taskmq` unless the URL has `?prefix=`. Braces are hash tags, so a script finds its
keys in one slot of a Redis Cluster:

    taskmq:{JOB}:result            hash: state, record (MessagePack)              the result's time to live
    taskmq:{OCCURRENCE}:occurrence hash: owner, until, claim                      the occurrence's
    taskmq:{JOB}:starts            hash: begun, call                              renewed by each begin
    taskmq:{JOB}:progress          hash: attempt, started, record (MessagePack)   the result's
    taskmq:{JOB}:checkpoints       hash: token, attempt, and :NAME -> value       renewed by each begin and save
        taskmq:{revoked}:places        sorted set: JOB by its cancellation            the longest cancellation's
        taskmq:{revoked}:ends          sorted set: JOB by the expiry of that          the same
        taskmq:{revoked}:reasons       hash: JOB -> reason                            the same
        taskmq:{schedules N}:NAME:record     string: version, record; N is one of 16, from the name   400 days
        taskmq:{schedules of APP}:definitions hash: NAME -> definition (JSON)          none, like delayed messages
        taskmq:{schedules of APP}:places     sorted set: NAME by its last change      none
        taskmq:{schedules of APP}:others     sorted set: NAME without a definition    none; removed after a day
    taskmq:{delay}:messages        hash: JOB -> token, due, message (MessagePack) none, see below
    taskmq:{delay}:due             sorted set: JOB by its due instant             none
    taskmq:{delay}:taken           sorted set: JOB by the end of its lease        none

Delayed messages have no time to live: a job that was sent must not vanish. So the server must not evict keys
without a time to live: `maxmemory-policy noeviction`, or a `volatile-` one. `RedisState.diagnose` checks that.

A key's name is also the channel on which its changes are published: a new result, or a message that is due
earlier than all others.

**Connections.** A state object has one connection for commands and, once a caller waits or listens, one for the
channels (`PubSub`). Commands collect on the event loop while a batch is under way and are sent together
(`Pipeline`), so thousands of calls share a few round trips, and a cancelled call never leaves a reply half read. On
a Redis Cluster there is one more connection for each node that replies refer to (`Server`).

**Scripts.** Every change is one Lua script, so it is atomic and uses the server's clock. Scripts are called by their
hash; a server that restarted or was flushed gets the source again.

Failures:

- The server is down, paused, or does not answer: a call ends with `StateUnavailable`, at once if the connection is
  refused, otherwise within `timeout` seconds (`?timeout=`, 5 by default). `is_certain` tells whether the call may
  have taken effect. Idempotent calls are sent once more after a lost connection.
- The server returns: the next call reconnects. Callers that wait for a result keep waiting; once the channels are
  subscribed again, they read everything again, so no message published meanwhile is missed.
- Sentinels name the primary (`?sentinel=`): every new connection asks one, so after a failover the next call goes to
  the new primary. While the sentinels name no primary, or one that is not promoted yet, calls fail at once.
- The server is loading, fails over, or moves slots (LOADING, TRYAGAIN, CLUSTERDOWN, MOVED, ASK): the call follows
  the reference or retries until its deadline. READONLY: the call fails, and the next one uses the next host of the
  URL.
- The memory is full (OOM): calls that add data are refused as a whole; taking, finishing and cancelling still work.
- The server was emptied: results are unknown, occurrences may be emitted again, and delayed messages are lost. Redis
  is never the only copy of a job that the broker confirmed; with `delay="state"` it is, until the job is due.
- It failed over to a lagging replica, or lost power: the last writes may be lost (operators control that with
  `appendfsync always` and `WAIT`).
"""

from taskmq_redis.state import RedisState, open_state

__all__ = ["RedisState", "open_state"]
