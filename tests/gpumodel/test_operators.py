"""The recorded step against hand counts of the models and against a published trace of the same
workload.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cifar_train.config import MODELS, PRECISIONS, TrainConfig
from gpumodel.recording import steps
from gpumodel.recording.gradient_exchange import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_sizes
from gpumodel.recording.operators import Operator
from gpumodel.recording.steps import operators_of_step, pack

PUBLISHED_BUCKETS = [1257572, 6822912, 6563840, 6637568, 2431040]
"""Elements of the all-reduces of ResNet-50 in the 4-rank MI300X trace of AMD's TraceLens example,
in order.
"""


def leaves(operators: tuple[Operator, ...]) -> list[Operator]:
    parents = {operator.parent for operator in operators}
    return [
        operator for operator in operators if operator.index not in parents and operator.on_device
    ]


def names(operators: tuple[Operator, ...], phase: str | None = None) -> Counter[str]:
    return Counter(
        operator.name for operator in leaves(operators) if phase in (None, operator.phase)
    )


def plain_copies(operators: tuple[Operator, ...], direction: str) -> int:
    return sum(operator.scalars.get("direction") == direction for operator in leaves(operators))


@pytest.fixture(scope="module")
def resnet() -> tuple[Operator, ...]:
    return operators_of_step(TrainConfig())


def test_parents_stand_before_their_children_and_indices_count_up(resnet):
    assert [operator.index for operator in resnet] == list(range(len(resnet)))
    assert all(operator.parent is None or operator.parent < operator.index for operator in resnet)


def test_resnet_has_its_53_convolutions_and_norms_in_both_directions(resnet):
    count = names(resnet)
    for name in (
        "miopen_convolution",
        "convolution_backward",
        "miopen_batch_norm",
        "miopen_batch_norm_backward",
    ):
        assert count[f"aten::{name}"] == 53


def test_gradient_buckets_are_those_of_the_published_trace(resnet):
    sizes = [
        o.inputs[0].shape[0] for o in leaves(resnet) if o.scalars.get("collective") == "allreduce"
    ]
    assert sizes == PUBLISHED_BUCKETS


def test_buffers_are_broadcast_once_for_each_type_before_the_forward_pass(resnet):
    own = [o.inputs[0] for o in leaves(resnet) if o.scalars.get("collective") == "broadcast"]
    assert [(tensor.shape, tensor.dtype) for tensor in own] == [
        ((53120,), "float32"),
        ((53,), "int64"),
    ]


def test_memory_copies_on_the_device_are_322_as_in_the_published_trace(resnet):
    # 159 buffers back from the broadcast, 161 gradients back from the buckets, 2 numbers of the
    # gradient scaler.
    assert plain_copies(resnet, "DeviceToDevice") == 159 + 161 + 2


def test_the_batch_goes_up_in_two_copies_that_nobody_waits_for(resnet):
    copies = [o for o in leaves(resnet) if o.scalars.get("direction") == "HostToDevice"]
    assert [copy.inputs[1].shape for copy in copies] == [(256, 3, 32, 32), (256,)]
    assert all(copy.scalars["non_blocking"] and copy.phase == "data" for copy in copies)


def test_flops_of_the_first_convolution_are_those_worked_out_by_hand(resnet):
    stem = next(operator for operator in resnet if operator.name == "aten::miopen_convolution")
    # 256 images, 64 channels of 16 x 16, each from 3 x 7 x 7 products and sums.
    assert stem.flops == 2 * 256 * 64 * 16 * 16 * 3 * 7 * 7


def test_flops_of_the_step_are_the_published_ones(resnet):
    forward = sum(operator.flops for operator in resnet if operator.phase == "forward")
    assert forward == pytest.approx(42.7e9, rel=0.01)
    # The images need no gradient: the first convolution's share of 1.23 GFLOP counts once backward.
    assert sum(operator.flops for operator in resnet) == pytest.approx(128.4e9 - 1.23e9, rel=0.01)


def test_autocast_multiplies_in_float16_and_normalises_with_float32_weights(resnet):
    convolutions = [operator for operator in resnet if operator.name == "aten::miopen_convolution"]
    assert {tensor.dtype for o in convolutions for tensor in o.inputs if tensor is not None} == {
        "float16"
    }
    norm = next(operator for operator in resnet if operator.name == "aten::miopen_batch_norm")
    assert (norm.inputs[0].dtype, norm.inputs[1].dtype) == ("float16", "float32")


def test_a_backward_operator_carries_number_and_layer_of_its_forward_one(resnet):
    forward = {o.sequence_number: o.module for o in resnet if o.name == "aten::miopen_convolution"}
    backward = {o.sequence_number: o.module for o in resnet if o.name == "ConvolutionBackward0"}
    assert len(forward) == 53
    assert backward == forward


def test_the_gradient_scaler_reads_one_number_back_only_where_it_must():
    assert names(operators_of_step(TrainConfig()))["aten::_local_scalar_dense"] == 1
    assert (
        names(operators_of_step(TrainConfig(fused_optimizer=True)))["aten::_local_scalar_dense"]
        == 0
    )
    assert (
        names(operators_of_step(TrainConfig(precision="float32")))["aten::_local_scalar_dense"] == 0
    )


def test_the_fused_optimizer_is_one_operator_over_all_lists():
    step = operators_of_step(TrainConfig(fused_optimizer=True))
    (fused,) = (operator for operator in step if operator.name == "aten::_fused_adam_")
    assert fused.scalars["lists"] == (161,) * 5
    assert not [name for name in names(step) if name.startswith("aten::_foreach_addc")]


def test_channels_last_goes_through_the_model_and_leaves_miopens_norms():
    step = operators_of_step(TrainConfig(channels_last=True))
    second = [operator for operator in step if operator.name == "aten::miopen_convolution"][1]
    assert second.inputs[0].channels_last
    # The last stage has 9 norms after 1 x 1 maps, where both orders are the same.
    assert names(step)["aten::native_batch_norm"] == 53 - 9
    assert names(step)["aten::miopen_batch_norm"] == 9


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_model_runs_in_every_precision_with_all_gradients_exchanged(model, precision):
    step = operators_of_step(TrainConfig(model=model, precision=precision, batch_size=8))
    parameters = {"resnet": 161, "vit": 200, "swinv2": 245}[model]
    scaled = [
        operator for operator in step if operator.name == "torch::distributed::reducer::mul_out"
    ]
    assert len(scaled) == parameters
    exchanged = sum(
        o.inputs[0].shape[0] for o in step if o.scalars.get("collective") == "allreduce"
    )
    update = next(operator for operator in step if operator.name == "aten::_foreach_lerp_")
    count = update.scalars["lists"][0]
    assert count == parameters
    assert exchanged == sum(_size(tensor.shape) for tensor in update.inputs[:count])


def _size(shape: tuple[int, ...]) -> int:
    product = 1
    for length in shape:
        product *= length
    return product


def test_attention_is_fused_as_on_a_gpu():
    half = names(operators_of_step(TrainConfig(model="vit", batch_size=8)))
    full = names(operators_of_step(TrainConfig(model="vit", batch_size=8, precision="float32")))
    assert half["aten::_flash_attention_forward"] == half["aten::_flash_attention_backward"] == 12
    assert (
        full["aten::_efficient_attention_forward"]
        == full["aten::_efficient_attention_backward"]
        == 12
    )


def test_compilation_fuses_small_operators_and_keeps_convolutions_exchange_and_optimizer(resnet):
    compiled = operators_of_step(TrainConfig(compile=True))
    count = names(compiled)
    assert count["aten::miopen_convolution"] == count["aten::convolution_backward"] == 53
    assert not count["aten::miopen_batch_norm"]
    assert [
        o.inputs[0].shape[0] for o in leaves(compiled) if o.name == "nccl:all_reduce"
    ] == PUBLISHED_BUCKETS
    fused = [operator for operator in compiled if operator.name.startswith("triton_")]
    assert len({operator.name for operator in fused}) == len(fused)
    assert len(leaves(compiled)) < len(leaves(resnet))
    assert any(o.name.startswith("triton_red_fused") and "batch_norm" in o.name for o in fused)


def test_a_fused_operator_reads_and_writes_only_what_others_need(resnet):
    compiled = operators_of_step(TrainConfig(compile=True))
    fused = [o for o in compiled if o.name.startswith("triton_red") and o.phase == "forward"]
    norm_and_relu = next(
        o for o in fused if o.scalars["fused"] == ("aten::miopen_batch_norm", "aten::clamp_min")
    )
    shapes = [tensor.shape for tensor in norm_and_relu.inputs]
    # The image-like input once, four vectors of the norm; its output is not read again by the fused
    # ReLU.
    assert sum(len(shape) == 4 for shape in shapes) == 1
    assert sum(len(shape) == 1 for shape in shapes) == 4
    assert norm_and_relu.outputs[-1].shape == norm_and_relu.inputs[0].shape


def test_each_fault_leaves_its_trace_in_the_operators(resnet):
    step = {name: operators_of_step(TrainConfig(pathology=name, batch_size=16)) for name in _FAULTS}
    assert names(step["sync-every-step"])["aten::_local_scalar_dense"] == 161 + 1
    assert plain_copies(step["unpinned-copies"], "HostToDevice") == 16 + 1
    assert not any(o.scalars.get("non_blocking") for o in step["unpinned-copies"])
    assert names(step["many-small-kernels"], "forward")["aten::sign"] == 49
    # 53 convolutions and the classifier get their input rearranged.
    clones = [o for o in step["wrong-layout"] if o.name == "aten::clone" and o.phase == "forward"]
    # The library puts 46 of them back; the last stage's 1 x 1 maps and the classifier's input are
    # the same in both.
    back = [
        o for o in step["wrong-layout"] if o.name == "aten::contiguous" and o.phase == "forward"
    ]
    assert len(clones) - len(back) == 54
    assert len(back) == sum(
        o.inputs[0].shape[-1] > 1 for o in resnet if o.name == "aten::miopen_convolution"
    )
    assert (
        plain_copies(step["memory-growth"], "DeviceToDevice")
        == plain_copies(resnet, "DeviceToDevice") + 1
    )
    assert names(step["broken-grad"])["aten::convolution_backward"] < 53


_FAULTS = (
    *(
        "sync-every-step",
        "unpinned-copies",
        "many-small-kernels",
        "wrong-layout",
        "memory-growth",
        "broken-grad",
    ),
)


def test_a_tiny_batch_has_as_many_operators_of_four_images(resnet):
    tiny = operators_of_step(TrainConfig(pathology="tiny-batch"))
    assert names(tiny) == names(resnet)
    assert next(o for o in tiny if o.name == "aten::miopen_convolution").inputs[0].shape[0] == 4


def test_faults_of_the_host_have_the_operators_of_a_healthy_step(resnet):
    for name in ("slow-loader", "rank-skew", "no-warmup"):
        assert operators_of_step(TrainConfig(pathology=name)) == resnet


def test_a_compiler_that_has_given_up_runs_eagerly():
    step = operators_of_step(TrainConfig(pathology="recompile", compile=True))
    assert names(step)["aten::miopen_batch_norm"] == 53


def test_batched_transforms_bring_bytes_up_and_work_to_the_device():
    step = operators_of_step(TrainConfig(batched_transforms=True, batch_size=8))
    up = next(
        operator for operator in leaves(step) if operator.scalars.get("direction") == "HostToDevice"
    )
    assert up.inputs[0].dtype == "uint8"
    assert names(step, "data")["aten::grid_sampler_2d"] == 1


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """A cache of this test alone, and no step that ships."""
    monkeypatch.setattr(steps, "SHIPPED", tmp_path / "none")
    monkeypatch.setenv("GPUMODEL_CACHE", str(tmp_path / "own"))
    return tmp_path / "own"


def test_a_second_call_is_answered_from_the_disk(resnet, monkeypatch, own_cache):
    monkeypatch.setattr(steps, "record", lambda config: resnet)
    assert operators_of_step(TrainConfig()) == resnet
    monkeypatch.setattr(steps, "record", lambda config: pytest.fail("recorded again"))
    assert operators_of_step(TrainConfig()) == resnet


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[:100], lambda whole: b"", lambda whole: pack([{"index": 0}])]
)
def test_a_broken_file_in_the_cache_is_made_again(damage, own_cache, monkeypatch, resnet):
    monkeypatch.setattr(steps, "record", lambda config: resnet)
    operators_of_step(TrainConfig())
    (file,) = own_cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert operators_of_step(TrainConfig()) == resnet
    assert file.read_bytes() == whole


@given(st.lists(st.integers(4, 40 * 1024 * 1024), min_size=1, max_size=60))
@settings(max_examples=100)
def test_buckets_keep_the_order_and_close_with_the_gradient_that_fills_them(sizes):
    buckets = bucket_sizes(sizes)
    assert [place for bucket in buckets for place in bucket] == list(range(len(sizes)))
    for number, bucket in enumerate(buckets):
        limit = BUCKET_BYTES if number else FIRST_BUCKET_BYTES
        assert sum(sizes[place] for place in bucket[:-1]) < limit
        if number < len(buckets) - 1:
            assert sum(sizes[place] for place in bucket) >= limit
