"""Operations of schedulers on the jobs of a store.

lanes -> dispatch -> take_claims -> publish -> confirm -> ... reports -> apply -> forget
|  refused: undispatch, or fail; running jobs continue
|  came back from a worker: dispatch_again -> publish, under the same token
look -> put_behind gates -> open_gates -> lanes
take_claims: behind the gate of a claim -> open_claims -> lanes
dispatch -> take_starts: those without room wait behind the gate of a rate
due -> fire -> lanes
take_over: batches that an earlier holder of the partition dispatched
"""
