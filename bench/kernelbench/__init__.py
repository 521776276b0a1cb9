"""The product on the problems of KernelBench, whose repository has to be fetched first:

    python -m bench.kernelbench baselines --root KernelBench --levels 1,2,3 --judges 4 --out baselines
    python -m bench.kernelbench loop --root KernelBench --levels 1,2,3 --judges 4 --out loop
    python -m bench.kernelbench official --root KernelBench --count 60 --judges 4 --exports exports --out official
    python -m bench.kernelbench verified --root KernelBench --count 60 --judges 4 --exports exports --out verified
    python -m bench.kernelbench tvm --root KernelBench --count 30 --seconds 15 --call-seconds 0.05 --out tvm
    python -m bench.kernelbench table --rows loop.jsonl --baselines baselines.jsonl --out table.md
    python -m bench.kernelbench table --official official.jsonl --verified verified.jsonl --out table.md

A problem's line of JSON is written as soon as it is done, and problems that are in the file already are left out: a run
that is killed loses one problem of each judge.
"""
