"""Top-k and top-p without a sort of the vocabulary leave what vLLM's own leave."""

import pytest
import torch
from live_fixtures import GREEDY
from vllm import SamplingParams
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

from tcim_lite.vllm.top_tokens import keep_top


@pytest.mark.parametrize("size", [97, 1536, 5000])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("k", [None, [1, 5, 20, 10**9], [50, 3000, 3, 2]])
@pytest.mark.parametrize("p", [None, [0.1, 0.5, 0.95, 1.0], [0.9, 0.999, 0.3, 0.7]])
def test_what_is_left_is_what_vllms_module_leaves(size, flat, k, p):
    logits = torch.randn(4, size, generator=torch.Generator().manual_seed(size)) * (0.01 if flat else 3)
    top_k = None if k is None else torch.tensor(k).clamp(max=size).to(torch.int32)
    top_p = None if p is None else torch.tensor(p)
    expected = apply_top_k_top_p_pytorch(logits.clone(), top_k, top_p)
    assert torch.equal(keep_top(logits.clone(), top_k, top_p), expected)


def test_of_equal_logits_at_the_edge_as_many_stay():
    logits = (torch.randn(4, 3000, generator=torch.Generator().manual_seed(1)) * 8).round() / 8
    k, p = torch.tensor([5, 40, 900, 3]), torch.tensor([0.9, 0.5, 0.99, 0.7])
    expected = apply_top_k_top_p_pytorch(logits.clone(), k, p)
    found = keep_top(logits.clone(), k, p)
    assert torch.equal(found.sort(dim=-1).values, expected.sort(dim=-1).values)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    logits = torch.randn(3, 4000, generator=torch.Generator().manual_seed(2)) * torch.tensor([[3.0], [0.01], [1.0]])
    k, p = torch.tensor([7, 4000, 2000]), torch.tensor([0.8, 0.9, 1.0])
    together = keep_top(logits.clone(), k, p)
    for row in range(3):
        alone = keep_top(logits[row : row + 1].clone(), k[row : row + 1], p[row : row + 1])
        assert torch.equal(alone[0], together[row])


def test_a_seed_gives_the_same_tokens_beside_requests_of_other_kinds(llm, prompts):
    params = SamplingParams(temperature=0.9, top_k=20, top_p=0.9, seed=3, max_tokens=12, ignore_eos=True)
    first = llm.generate([{"prompt_token_ids": prompts[0]}], params, use_tqdm=False)[0].outputs[0].token_ids
    others = [SamplingParams(temperature=1.0, top_p=0.99, max_tokens=12), GREEDY, SamplingParams(top_k=3)]
    asked = [{"prompt_token_ids": prompt} for prompt in prompts[:4]]
    assert llm.generate(asked, [params, *others], use_tqdm=False)[0].outputs[0].token_ids == first


def test_completions_of_one_request_are_those_of_requests_with_the_seeds_after_its_own(llm, prompts):
    asked = [{"prompt_token_ids": prompts[0]}]
    params = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True}
    several = llm.generate(asked, SamplingParams(n=6, seed=42, **params), use_tqdm=False)[0].outputs
    alone = [llm.generate(asked, SamplingParams(seed=42 + i, **params), use_tqdm=False)[0].outputs[0] for i in range(6)]
    assert [out.token_ids for out in several] == [out.token_ids for out in alone]
    assert len({tuple(out.token_ids) for out in several}) == 6


def test_logprobs_of_named_tokens_are_those_of_all(llm, prompts):
    asked = [{"prompt_token_ids": prompt} for prompt in prompts[:3]]
    params = {"temperature": 0, "max_tokens": 4, "ignore_eos": True}
    whole = llm.generate(asked[0], SamplingParams(logprobs=20, **params), use_tqdm=False)[0].outputs[0].logprobs
    names = list(whole[0])[3:9:2]
    kinds = [SamplingParams(logprob_token_ids=names, **params), SamplingParams(logprobs=2, **params), GREEDY]
    found = [out.outputs[0].logprobs for out in llm.generate(asked, kinds, use_tqdm=False)]
    assert set(names) <= set(found[0][0]) <= {*names, *list(whole[0])[:1]}
    assert [found[0][0][token].logprob for token in names] == pytest.approx([whole[0][t].logprob for t in names])
    assert [len(place) for place in found[1]] == [2] * 4
    assert found[2] is None
