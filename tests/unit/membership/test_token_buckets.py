from __future__ import annotations

from neuroswarm.membership.token_buckets import TokenBucket, TokenBuckets


def test_a_bucket_gives_its_burst_and_refills_at_its_rate():
    bucket = TokenBucket(per_s=2.0, burst=4.0, level=4.0, since=10.0)
    assert [bucket.take(1.0, 10.0) for _ in range(5)] == [True] * 4 + [False]
    assert not bucket.take(1.0, 10.4)
    assert bucket.take(1.0, 10.5)
    assert not bucket.take(4.1, 1000.0)
    assert bucket.take(4.0, 1000.0)


def test_what_is_not_there_is_not_taken_in_part():
    bucket = TokenBucket(per_s=0.0, burst=4.0, level=4.0, since=0.0)
    assert not bucket.take(5.0, 0.0)
    assert bucket.take(4.0, 0.0)


def test_each_key_has_its_own_bucket_and_the_oldest_is_forgotten():
    buckets: TokenBuckets[str] = TokenBuckets(per_s=2.0, burst=1.0, max_keys=2)
    assert buckets.allows("a", 0.0)
    assert not buckets.allows("a", 0.4)
    assert buckets.allows("b", 0.4)
    assert buckets.allows("a", 0.5)
    assert buckets.allows("c", 0.5)
    assert len(buckets) == 2
    assert not buckets.allows("a", 0.5)
    assert buckets.allows("b", 0.5)  # forgotten, so full again


def test_amounts_count():
    buckets: TokenBuckets[str] = TokenBuckets(per_s=10.0, burst=100.0)
    assert buckets.allows("a", 0.0, 99.0)
    assert not buckets.allows("a", 0.0, 2.0)
    assert buckets.allows("a", 0.1, 2.0)
