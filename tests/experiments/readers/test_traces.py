"""Job and request traces: what is read, assumed and doubted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.core.errors import BadInput
from experiments.core.options import WorkloadOptions
from experiments.readers.base import Opened, open_file
from experiments.workloads.jobs import JobTrace
from experiments.workloads.requests import RequestTrace


def opened(folder: Path, content: str, **options: object) -> Opened:
    file = folder / "trace.csv"
    file.write_text(content)
    return open_file(file, "auto", WorkloadOptions(**options))  # type: ignore[arg-type]


RAW = "job_id,submission_time,duration,num_gpu\n"


class TestJobs:
    def test_jobs_are_numbered_by_submission_and_equal_times_by_id(self, tmp_path: Path) -> None:
        trace = opened(tmp_path, RAW + "10,5,1,1\n9,5,2,2\n3,1,3,4\n").reading.value
        assert trace.job == ("3", "9", "10")
        assert trace.service.tolist() == [3, 2, 1]
        assert trace.original["num_gpu"] == ("4", "2", "1")

    def test_deadlines_models_and_both_spellings(self, tmp_path: Path) -> None:
        rows = "a,0,100,vgg16,50,64,2,40\nb,1,100,bert,60,64,1,40\n"
        published = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        artifact = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"
        for header in (published, artifact):
            found = opened(tmp_path, header + rows)
            assert found.reader.format == "elasticflow"
            assert found.reading.value.deadline.tolist() == [50, 60]
            assert found.reading.value.model == ("vgg16", "bert")

    def test_the_plain_format_needs_three_columns(self, tmp_path: Path) -> None:
        found = opened(tmp_path, "service,gpus,submit,deadline\n5,1,0,\n6,2,1,9\n")
        assert found.reader.format == "jobs-csv"
        assert found.reading.value.job == ("0", "1")
        assert np.isnan(found.reading.value.deadline).tolist() == [True, False]
        assert found.reading.assumed == ("jobs are numbered by their row: the file has no column job",)

    def test_limit_and_rate(self, tmp_path: Path) -> None:
        rows = "submit,gpus,service,deadline\n0,1,5,10\n10,1,5,30\n20,1,5,40\n30,1,5,50\n"
        assert len(opened(tmp_path, rows, limit=2).reading.value) == 2
        faster: JobTrace = opened(tmp_path, rows, rate=4 / 15).reading.value
        assert faster.submit.tolist() == [0, 5, 10, 15]
        assert (faster.deadline - faster.submit).tolist() == [10, 20, 20, 20]

    def test_doubts(self, tmp_path: Path) -> None:
        rows = "submit,gpus,service,deadline\n5,1,0,\n5,4096,1,\n5,1,9000000,2\n"
        assert opened(tmp_path, rows).reading.warnings == (
            "1 of 3 jobs run for 0 seconds (the first: 0)",
            "1 of 3 jobs run for more than 90 days (the first: 2)",
            "1 of 3 jobs want more than 1024 GPUs (the first: 1)",
            "1 of 3 jobs have a deadline before they are submitted (the first: 2)",
            "all 3 jobs are submitted at the same time",
        )


class TestRequests:
    def test_the_clock_starts_at_the_first_arrival(self, tmp_path: Path) -> None:
        rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        rows += "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n"
        trace: RequestTrace = opened(tmp_path, rows).reading.value
        assert trace.arrival.tolist() == [0, 4.314579]
        assert (trace.prompt.tolist(), trace.output.tolist()) == ([374, 396], [44, 109])

    def test_burstgpt_leaves_out_what_failed(self, tmp_path: Path) -> None:
        rows = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        rows += "45,GPT-4,1087,230,1317,Conversation log\n5,ChatGPT,472,18,490,Conversation log\n"
        found = opened(tmp_path, rows + "1106,ChatGPT,0,0,0,API log\n1107,ChatGPT,9,0,9,API log\n")
        trace: RequestTrace = found.reading.value
        assert found.reader.format == "burstgpt" and trace.arrival.tolist() == [0, 40]
        assert (trace.prompt.tolist(), trace.output.tolist()) == ([472, 1087], [18, 230])
        assert trace.model == ("ChatGPT", "GPT-4")
        assert found.reading.assumed[1].startswith("2 requests without tokens")
        with pytest.raises(BadInput, match="line 2, column Response tokens"):
            opened(tmp_path, rows.replace(",230,", ",-1,"))

    def test_rate_keeps_the_pattern(self, tmp_path: Path) -> None:
        rows = "arrival,prompt,output,model\n100,1,1,a\n101,1,1,b\n104,1,1,a\n"
        trace: RequestTrace = opened(tmp_path, rows, rate=1.5).reading.value
        assert trace.arrival.tolist() == [0, 0.5, 2]
        assert trace.model == ("a", "b", "a")


class TestRealTraces:
    @pytest.mark.parametrize(
        ("file", "format", "rows"),
        [
            ("cluster/elasticflow/raw-traces.tar.gz", "elasticflow-raw", 69_351),
            ("cluster/elasticflow/elasticflow-traces.tar.gz", "elasticflow", 69_546),
            ("cluster/elasticflow/elasticVpollux_e.csv", "elasticflow", 195),
            ("cluster/elasticflow/philly_103959.csv", "elasticflow", 876),
            ("cluster/tiresias/60_job.csv", "tiresias", 60),
            ("serving/azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "azure-llm", 19_366),
            ("serving/azure_llm_2023/AzureLLMInferenceTrace_code.csv", "azure-llm", 8_819),
        ],
    )
    def test_every_row_is_read(self, shared_data: Path, file: str, format: str, rows: int) -> None:
        found = open_file(shared_data / file, "auto", WorkloadOptions())
        assert (found.reader.format, len(found.reading.value)) == (format, rows)

    def test_merged_clusters_keep_their_names(self, shared_data: Path) -> None:
        path = shared_data / "cluster/elasticflow/raw-traces.tar.gz"
        reading = open_file(path, "auto", WorkloadOptions()).reading
        assert sorted(set(reading.value.tenant)) == [f"cluster{number:02}" for number in range(1, 11)]
        assert reading.assumed[0] == "10 files merged on one clock, job ids prefixed with the file's name"


class TestRequestsWithBlocks:
    OWN = '{"arrival": 2.5, "prompt": 40, "output": 3, "block": 16, "hashes": [1, 2]}\n'
    FIRST = '{"arrival": 1.5, "prompt": 20, "output": 4, "block": 16, "hashes": [7]}\n'
    MOONCAKE = '{"timestamp": 3000, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}\n'

    def test_lines_are_sorted_with_their_blocks(self, tmp_path: Path) -> None:
        found = opened(tmp_path, self.OWN + self.FIRST)
        trace: RequestTrace = found.reading.value
        assert (found.reader.format, trace.arrival.tolist(), trace.prompt.tolist()) == (
            "requests-jsonl",
            [0, 1],
            [20, 40],
        )
        assert trace.hashes is not None
        assert (trace.hashes.lists(), trace.block) == ([[7], [1, 2]], 16)
        cut = opened(tmp_path, self.OWN + self.FIRST, limit=1).reading.value
        assert cut.hashes.lists() == [[7]]

    def test_mooncake_counts_milliseconds_and_blocks_of_512(self, tmp_path: Path) -> None:
        found = opened(tmp_path, self.MOONCAKE.replace("3000", "1000") + self.MOONCAKE)
        assert (found.reader.format, found.reading.value.arrival.tolist()) == ("mooncake", [0, 2])
        assert found.reading.value.block == 512

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ('{"arrival": 1, "prompt": 4, "output": 1, "hashes": [1]}', "block = None"),
            ('{"arrival": 1, "prompt": 4, "output": 1, "block": 16, "hashes": ["a"]}', "whole numbers"),
            ('{"arrival": "x", "prompt": 4, "output": 1}', "is not a number"),
            (
                '{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2, 3]}',
                "line 1, column hash_ids: 3 blocks of a prompt of 1000 tokens .*its 2 full blocks of 512",
            ),
            ('{"arrival": 1, "prompt": 4, "output": 0}', "line 1"),
            ('{"arrival": 1, "prompt": 4, "output": 1}\n[]', "line 2"),
            ('{"arrival": 1, "prompt": 4, "output": 1', "not valid JSON"),
        ],
    )
    def test_a_wrong_line_is_named(self, tmp_path: Path, line: str, said: str) -> None:
        with pytest.raises(BadInput, match=said):
            opened(tmp_path, line)


def test_best_effort_jobs_of_elasticflow_have_no_deadline(tmp_path: Path) -> None:
    header = "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort"
    file = tmp_path / "jobs.csv"
    file.write_text(f"{header}\n0,0,5,bert,90,8,1,60,0\n1,0,5,bert,90,8,1,60,1\n")
    found = open_file(file, "auto", WorkloadOptions()).reading
    assert found.value.deadline.tolist()[0] == 90
    assert np.isnan(found.value.deadline[1])
    assert "jobs with best_effort 1 have no deadline" in found.assumed
