"""The command line: one JSON object a line, wrong options in one line with status 2, quick help, a clean end."""

import json
import signal
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-W", "error", "-m", "grpo_core.live"]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=180, check=False)


def test_events_are_printed_one_a_line():
    done = run("--steps", "2", "--seed", "3", "--eval-prompts", "20", "--eval-every", "2")
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["start", "eval", "step", "step", "eval", "end"]
    assert events[0]["config"]["seed"] == 3
    assert events[0]["config"]["pace"] is None
    step = events[2]
    assert step["step"] == 1
    assert 0 <= step["reward_mean"] <= 1
    keys = {"prompt", "completions", "rewards", "mean", "std", "advantages", "kind"}
    assert all(set(group) >= keys for group in step["groups"])
    assert "tokens" not in step["groups"][0]
    assert 0 <= events[4]["accuracy"] <= 1
    assert events[-1]["state"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--steps", "many"], "--steps='many' is not accepted: give a whole number from 1 to 100000"),
        (["--group-size", "0"], "--group-size='0' is not accepted: give a whole number from 1 to 64"),
        (["--recipe", "ppo"], "--recipe='ppo' is not accepted: give one of grpo_paper"),
        (["--recipe", "dapo_paper", "--epsilon-high", "x"], "--epsilon-high='x' is not accepted: give a number"),
        (["--stepz", "3"], "unrecognized arguments: --stepz 3; accepted are"),
        (["--step", "3"], "unrecognized arguments: --step 3; accepted are"),
        (["--steps"], "argument --steps: expected one argument"),
        (["--probe", "maybe"], "--probe='maybe' is not accepted: give true or false"),
        (["--groups", "some"], "(choose from"),
        (["--device", "tpu"], "--device='tpu' is not accepted: give one of auto, cpu, cuda, mps"),
    ],
)
def test_a_wrong_option_is_one_line_and_status_2(arguments, expected):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_help_lists_the_settings_without_loading_torch():
    code = (
        "import sys\nfrom grpo_core.live.__main__ import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    status = end.code\n"
        "loaded = {'torch', 'transformers', 'streamlit', 'sqlalchemy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--learning-rate" in done.stdout
    assert "a whole number from 1 to 64 (default: 8)" in done.stdout


def test_training_loads_no_streamlit_and_no_database():
    code = (
        "import sys\nfrom grpo_core.live import RunConfig, train\n"
        "list(train(RunConfig(steps=1, pace=None, eval_prompts=4)))\n"
        "loaded = {'streamlit', 'sqlalchemy'} & set(sys.modules)\nsys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="this system has no SIGPIPE")
def test_a_reader_that_leaves_ends_the_training_without_a_complaint():
    with subprocess.Popen([*COMMAND, "--steps", "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert json.loads(process.stdout.readline())["event"] == "start"
        process.stdout.close()
        assert process.wait(timeout=180) == -signal.SIGPIPE
        assert process.stderr.read() == b""


def test_ctrl_c_prints_the_end_and_leaves():
    with subprocess.Popen([*COMMAND, "--steps", "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for line in process.stdout:
            if json.loads(line)["event"] == "step":
                break
        process.send_signal(signal.SIGINT)
        last = json.loads(process.stdout.read().splitlines()[-1])
        assert (last["event"], last["state"]) == ("end", "stopped")
        assert process.wait(timeout=180) == 130
        assert process.stderr.read() == b""


def test_a_run_is_kept_in_a_store_and_goes_on_from_its_checkpoint(tmp_path):
    from grpo_core.live.store import RunStore

    quick = ("--eval-prompts", "4", "--prompts-per-step", "2", "--groups", "none")
    done = run("--store", str(tmp_path), "--steps", "3", *quick)
    assert (done.returncode, done.stderr) == (0, "")
    (known,) = RunStore(tmp_path).runs()
    assert (known.state, known.step) == ("finished", 3)
    more = run("--store", str(tmp_path), "--resume", known.id, "--steps", "5", "--groups", "none")
    assert (more.returncode, more.stderr) == (0, "")
    events = [json.loads(line) for line in more.stdout.splitlines()]
    told = [(event.get("name", event["event"]), event["step"]) for event in events]
    assert told == [("continued", 3), ("set", 3), ("step", 4), ("step", 5), ("eval", 5), ("end", 5)]
    rows = RunStore(tmp_path).metrics(known.id)
    assert [row["step"] for row in rows if row["event"] == "step"] == [1, 2, 3, 4, 5]
    wrong = run("--store", str(tmp_path), "--resume", known.id, "--seed", "5")
    assert wrong.returncode == 2
    assert "'seed' cannot change when a run goes on" in wrong.stderr
    assert "give --store" in run("--resume", known.id).stderr
    assert "There is no run" in run("--store", str(tmp_path), "--resume", "nothing").stderr
