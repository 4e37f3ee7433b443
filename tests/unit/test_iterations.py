import numpy as np
import pytest

from grpo_core.iterations import MAX_MOMENTS, iterative_schedule, replay_shares


class TestSchedule:
    def test_the_order_of_algorithm_1(self):
        actions = [m.action for m in iterative_schedule(iterations=2, steps=2, epochs=1)]
        once = ["reference", "sample", "update", "sample", "update", "reward"]
        assert actions == once * 2

    def test_versions_count_gradient_steps(self):
        moments = iterative_schedule(iterations=2, steps=3, epochs=4)
        last = moments[-1]
        assert (last.current, last.old, last.reference, last.reward) == (24, 20, 12, 2)

    def test_the_old_policy_is_never_more_than_the_epochs_behind(self):
        moments = iterative_schedule(iterations=2, steps=3, epochs=4)
        assert max(m.behind_old for m in moments) == 4
        assert all(m.behind_old == 0 for m in moments if m.action == "sample")
        assert max(m.behind_reference for m in moments) == 12
        assert all(m.behind_reference == 0 for m in moments if m.action == "reference")

    def test_without_retraining_the_reward_model_stays(self):
        moments = iterative_schedule(iterations=3, steps=1, epochs=1, retrain=False)
        assert {m.reward for m in moments} == {0}
        assert "reward" not in {m.action for m in moments}

    @pytest.mark.parametrize("name", ["iterations", "steps", "epochs"])
    def test_counts_start_at_one(self, name):
        with pytest.raises(ValueError, match=name):
            iterative_schedule(**{"iterations": 1, "steps": 1, "epochs": 1, name: 0})

    def test_an_endless_list_is_refused(self):
        with pytest.raises(ValueError, match=f"at most {MAX_MOMENTS}"):
            iterative_schedule(iterations=100, steps=100, epochs=100)


class TestReplay:
    def test_ten_percent_is_history(self):
        shares = replay_shares(5)
        assert shares.sum() == pytest.approx(1.0)
        assert shares[-1] == pytest.approx(0.9)
        np.testing.assert_allclose(shares[:-1], 0.025)

    def test_the_first_time_there_is_no_history(self):
        assert replay_shares(1, replay=0.5).tolist() == [1.0]

    def test_bad_input(self):
        with pytest.raises(ValueError, match="iteration"):
            replay_shares(0)
        with pytest.raises(ValueError, match="replay"):
            replay_shares(2, replay=1.5)
