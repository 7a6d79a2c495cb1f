"""The figures a run can report: one name, one unit and one direction for each, everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.differences import ENDS, INTERVALS
from experiments.core.errors import BadInput


@dataclass(frozen=True)
class Metric:
    """A reported figure. ``lower_is_better`` is ``None`` for figures that only describe."""

    name: str
    unit: str
    lower_is_better: bool | None
    label: str


_CATALOG = """
peak_memory                      bytes      lower   peak memory
peak_memory_per_device           bytes      lower   peak memory of the fullest device
peak_reserved_per_device         bytes      lower   peak of the allocator on the fullest device
peak_reserved_on_first_device    bytes      lower   peak of the allocator on the plan's first device
mean_peak_memory_per_device      bytes      lower   peak memory averaged over devices
average_memory                   bytes      lower   device bytes averaged over the step
host_peak_memory                 bytes      lower   peak host memory
storage_peak_memory              bytes      lower   peak bytes on storage
remote_peak_memory               bytes      lower   peak bytes on memory beyond the host's
pool_bytes                       bytes      lower   how far the allocator reaches over the device
page_faults                      count      lower   page faults in a step
persistent_bytes                 bytes      -       parameters, gradients kept and optimizer state
step_time                        s          lower   step time
ideal_step_time                  s          -       step time with infinite memory
ideal_share                      fraction   higher  share of the speed with infinite memory
stall_time                       s          lower   stall time
overlap_time                     s          higher  transfer time hidden behind compute
execution_time                   s          -       time computing with every channel idle
host_compute_time                s          -       time the host's processor computes
recompute_time                   s          lower   recompute time
offloaded_bytes                  bytes      lower   bytes offloaded
prefetched_bytes                 bytes      lower   bytes prefetched
samples_per_second               samples/s  higher  samples per second
tokens_per_second                tokens/s   higher  tokens per second
mfu                              fraction   higher  model FLOPs utilization
hfu                              fraction   higher  hardware FLOPs utilization
jct                              s          lower   job completion time
max_parameter_difference         abs        lower   largest parameter difference from the unplanned run
bubble_fraction                  fraction   lower   pipeline bubble
exposed_communication_time       s          lower   exposed communication time
communication_time               s          lower   communication time
update_time                      s          lower   time of the optimizer
communication_bytes              bytes      lower   bytes communicated per device
devices                          devices    -       devices used
staleness_mean                   updates    lower   mean updates that gradients are late
staleness_max                    updates    lower   most updates that a gradient is late
weight_versions                  versions   lower   most versions of a stage's weights at once
stashed_bytes                    bytes      lower   older weights kept on a device
initial_loss                     nats       -       loss before training
final_loss                       nats       lower   loss at the end of training
latency                          s          lower   latency
mbu                              fraction   higher  memory bandwidth utilization
max_context                      tokens     higher  longest context that fits
roofline_latency                 s          lower   latency by a calibrated roofline
compile_time                     s          lower   compile time
compile_cpu_time                 s          lower   processor time of compiling, the C++ compiler's too
speedup                          ratio      higher  speed-up over eager
speedup_low                      ratio      -       lower end of the speed-up's 95 % interval
speedup_high                     ratio      -       upper end of the speed-up's 95 % interval
eager_peak_memory                bytes      -       peak memory of an eager call
compression_ratio                ratio      higher  eager's peak memory over ours
break_even                       calls      lower   calls until compiling's processor time has paid back
traffic_ratio                    ratio      lower   memory traffic over that of operators by themselves
speedup_over_library             ratio      higher  speed-up over the library, weights packed beforehand
speedup_over_library_low         ratio      -       lower end of its 95 % interval
speedup_over_library_high        ratio      -       upper end of its 95 % interval
speedup_over_tensorflow          ratio      higher  TensorFlow's recorded time over ours
speedup_over_tvm                 ratio      higher  TVM's recorded time over ours
speedup_over_ansor               ratio      higher  Ansor's recorded time over ours
speedup_over_roller              ratio      -       recorded time of Roller's own kernels over ours
kernels                          kernels    lower   kernels
ops                              ops        lower   ops that compute, views apart
library_calls                    calls      -       calls of a library's kernels
fallbacks                        ops        lower   ops the compiler left to eager
graphs                           graphs     lower   graphs compiled
graph_breaks                     breaks     lower   graph breaks
recompiles                       count      lower   recompilations
onnx_nodes                       nodes      lower   nodes of the optimized ONNX graph
padding_waste                    fraction   lower   rows of padding for each useful row
warm_compile_time                s          lower   compile time with a full cache
rewrites                         rewrites   -       rewrites applied
trials                           trials     -       schedules tried
failed_trials                    trials     lower   schedules that failed
trials_to_90                     trials     lower   trials to 90 % of the best throughput
trials_to_95                     trials     lower   trials to 95 % of the best throughput
trials_to_99                     trials     lower   trials to 99 % of the best throughput
trials_to_best                   trials     lower   trials to the best schedule
random_trials_to_90              trials     -       trials of a random search to 90 %
random_trials_to_95              trials     -       trials of a random search to 95 %
random_trials_to_99              trials     -       trials of a random search to 99 %
random_trials_to_best            trials     -       trials of a random search to the best
recorded_best_time               s          -       best time recorded in the log
achieved_flops                   FLOP/s     higher  FLOP/s of the best schedules
flops                            FLOP       lower   FLOPs
bytes                            bytes      lower   bytes read and written
max_abs_error                    abs        lower   largest absolute error against eager
sqnr                             dB         higher  signal to quantization noise of the outputs
weight_sqnr                      dB         higher  signal to quantization noise of the weights
channel_sqnr                     dB         higher  median of the same over output channels
model_bytes                      bytes      lower   constants that a call reads
model_bytes_before               bytes      -       constants that a call of the original reads
top1_agreement                   fraction   higher  largest output at the same place as eager's
loss_increase                    nats       lower   loss above eager's
final_loss_in_float32            nats       -       loss of the same steps in float32
skipped_steps                    steps      lower   training steps skipped by loss scaling
max_gradient_error               abs        lower   largest gradient difference from one process
avg_jct                          s          lower   average job completion time
p50_jct                          s          lower   median job completion time
p90_jct                          s          lower   90th percentile job completion time
p99_jct                          s          lower   99th percentile job completion time
p999_jct                         s          lower   99.9th percentile job completion time
makespan                         s          lower   makespan
avg_queueing_delay               s          lower   average time until a job first starts
avg_waiting_time                 s          lower   average time without devices
utilization                      fraction   higher  device utilization
worker_busy_fraction             fraction   higher  time that devices are busy, as Gavel counts it
cpu_utilization                  fraction   higher  processors of hosts given to jobs
deadline_satisfaction            fraction   higher  jobs that met their deadline
deadline_admitted_satisfaction   fraction   higher  admitted jobs that met their deadline
best_effort_avg_jct              s          lower   average completion time of jobs without a deadline
finish_time_fairness_max         ratio      lower   worst finish-time fairness
finish_time_fairness_p99         ratio      lower   99th percentile finish-time fairness
finish_time_fair_fraction        fraction   higher  jobs no later than on their share of the cluster
preemptions                      count      lower   times that a job or request was preempted
restarts                         count      lower   executions after a job's first
migrations                       count      lower   executions that go on on other nodes
resizes                          count      -       executions that go on with more or fewer devices
restart_gpu_seconds              s          lower   device time without progress, of restarts
lost_gpu_seconds                 s          lower   device time of progress that was lost
idle_gpu_seconds                 s          lower   device time held and not computed in
node_failures                    count      -       failures of nodes
contention_mean                  ratio      -       GPUs wanted over those there are, in the mean
contention_max                   ratio      -       GPUs wanted over those there are, at most
cost                             USD        lower   price of the device time held
jct_error_mean                   ratio      -       simulated mean completion time over measured, less 1
makespan_error                   ratio      -       simulated makespan over measured, less 1
gpu_allocation_ratio             fraction   higher  GPUs allocated
fragmentation                    fraction   lower   fragmentation
unfinished_jobs                  jobs       lower   unfinished jobs
rejected_jobs                    jobs       lower   refused jobs
admitted_fraction                fraction   higher  jobs that were not refused
jobs                             jobs       -       jobs in the trace
requests                         requests   -       requests in the trace
rejected_requests                requests   lower   rejected requests
unfinished_requests              requests   lower   unfinished requests
context_limited_requests         requests   -       requests whose answer ends at the model's context
iterations                       count      -       engine iterations
ttft_mean                        s          lower   mean time to first token
ttft_p50                         s          lower   median time to first token
ttft_p90                         s          lower   90th percentile time to first token
ttft_p95                         s          lower   95th percentile time to first token
ttft_p99                         s          lower   99th percentile time to first token
tpot_mean                        s          lower   mean time per output token
tpot_p50                         s          lower   median time per output token
tpot_p90                         s          lower   90th percentile time per output token
tpot_p95                         s          lower   95th percentile time per output token
tpot_p99                         s          lower   99th percentile time per output token
tbt_p99                          s          lower   99th percentile time between tokens
scheduling_delay_p50             s          lower   median time until a request is first in a pass
latency_mean                     s          lower   mean request latency
latency_p50                      s          lower   median request latency
latency_p90                      s          lower   90th percentile request latency
latency_p95                      s          lower   95th percentile request latency
latency_p99                      s          lower   99th percentile request latency
normalized_latency_p50           s          lower   median latency per output token
slo_attainment                   fraction   higher  requests within their objective
goodput                          requests/s higher  requests within their objective per second
throughput                       requests/s higher  requests completed per second
peak_kv_tokens                   tokens     lower   most KV slots reserved at once
kv_utilization_mean              fraction   -       KV memory used, averaged over time
batch_size_mean                  requests   -       requests in a pass, averaged over passes
preempted_requests               requests   lower   requests that lost their KV memory
recomputed_tokens                tokens     lower   tokens computed again after that
swapped_bytes                    bytes      lower   KV bytes copied to and from the host
kv_saved_fraction                fraction   higher  KV memory that sequences of a request share
prefix_hit_fraction              fraction   higher  tokens of prompts found in KV memory
tokens_per_verification          tokens     higher  tokens out of a pass that verifies drafts
extrapolated_steps               count      -       passes priced beyond what was measured
ttft_error                       fraction   -       mean time to first token over the measured one, less 1
tpot_error                       fraction   -       mean time per output token over the measured one, less 1
latency_error                    fraction   -       mean request latency over the measured one, less 1
max_rate                         requests/s higher  highest rate within the objectives
transfer_time                    s          lower   mean time of a copy of KV between instances
transfer_wait                    s          lower   mean time that KV waits before it is copied
model_loads                      count      lower   copies of weights to devices
switch_time_mean                 s          lower   mean time of a change of models
preemption_latency_p99           s          lower   99th percentile until a request has the device
realtime_overhead                fraction   lower   real-time latency over that alone, less 1
best_effort_throughput           passes/s   higher  best-effort passes completed per second
duty_cycle                       s          -       mean cycle of devices that take turns
"""

_DIRECTION: dict[str, bool | None] = {"lower": True, "higher": False, "-": None}


def _parse(line: str) -> Metric:
    name, unit, direction, label = line.split(None, 3)
    return Metric(name, unit, _DIRECTION[direction], label)


METRICS: dict[str, Metric] = {m.name: m for m in map(_parse, _CATALOG.strip().splitlines())}


def metric(name: str) -> Metric:
    """The metric called ``name``; an unlisted name is an error, so that a figure never lacks its unit."""
    if name not in METRICS:
        raise BadInput(f"unknown metric {name!r}", "metrics", f"one of {', '.join(sorted(METRICS))}")
    return METRICS[name]


def known_or_plain(name: str) -> Metric:
    """The metric called ``name``; one without unit and direction for what somebody's own program named so.

    ``train/step_time`` is a ``step_time``.
    """
    kind = name.rsplit("/", 1)[-1]
    if kind not in METRICS:
        return Metric(name, "", None, name.replace("_", " "))
    known = METRICS[kind]
    return known if kind == name else Metric(name, known.unit, known.lower_is_better, name.replace("_", " "))


#: What planning took on the host of the run: measured in every mode.
CLOCKED = ("compile_time", "compile_cpu_time")
#: Ratios of such figures, and what follows from them.
RATIOS = frozenset((*INTERVALS, *ENDS, "break_even"))


def is_noisy(name: str, mode: str) -> bool:
    """Return whether a figure of a run in ``mode`` is read off a clock, so that repeats differ."""
    found = METRICS.get(name)
    by_clock = found is not None and (_is_of_a_clock(found.unit) or name in RATIOS)
    return name in CLOCKED or (mode == "measured" and by_clock)


def _is_of_a_clock(unit: str) -> bool:
    """Times and rates, which a clock of this host gives in a measured run; other figures are counted."""
    return unit == "s" or unit.endswith("/s")
