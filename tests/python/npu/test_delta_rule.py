"""The gated delta rule of torch_npu against the recurrence in PyTorch."""

import torch
from draws import CASES, Draw, close, refused

BF16 = torch.bfloat16


def recurrence(q, k, v, beta, g, gk, scale, state):
    """One sequence: (out [L, Nv, Dv], the state after each token [L, Nv, Dv, Dk])."""
    repeat = v.shape[1] // q.shape[1]
    q, k = (t.float().repeat_interleave(repeat, 1) for t in (q, k))
    outs, states, s = [], [], state.float()
    for t in range(q.shape[0]):
        if g is not None:
            s = s * g[t].exp()[:, None, None]
        if gk is not None:
            s = s * gk[t].exp()[:, None, :]
        seen = torch.einsum("hvk,hk->hv", s, k[t])
        b = 1 if beta is None else beta[t].float()[:, None]
        s = s + torch.einsum("hv,hk->hvk", b * (v[t].float() - seen), k[t])
        outs.append(torch.einsum("hvk,hk->hv", s, q[t] * scale))
        states.append(s)
    return torch.stack(outs), torch.stack(states)


def unit(x):
    return torch.nn.functional.normalize(x.float(), dim=-1).to(BF16)


def test_recurrent(torch_npu):
    draw = Draw(51)
    for _ in range(CASES):
        lengths = [draw.size(1, 4) for _ in range(draw.size(1, 3))]
        tokens, nk = sum(lengths), draw.size(1, 2)
        nv, dk, dv = nk * draw.size(1, 2), draw.size(1, 8), draw.size(1, 8)
        q, k = (unit(draw.tensor(tokens, nk, dk)) for _ in range(2))
        v = draw.tensor(tokens, nv, dv, dtype=BF16)
        blocks = tokens + draw.size(0, 2)
        state = draw.tensor(blocks, nv, dv, dk, dtype=BF16, strided=False)
        index = torch.randperm(blocks, generator=draw.generator)[:tokens].to(torch.int32)
        beta = draw.maybe(draw.tensor(tokens, nv, dtype=BF16, low=0, high=1))
        g = draw.maybe(draw.tensor(tokens, nv, low=-1, high=0))
        gk = draw.maybe(draw.tensor(tokens, nv, dk, low=-1, high=0), 0.3)
        accepted = draw.maybe([draw.size(1, n) for n in lengths])
        expected, outs, start = state.float().clone(), [], 0
        for i, n in enumerate(lengths):
            at = slice(start, start + n)
            first = index[start + (accepted[i] - 1 if accepted else 0)]
            part = [t if t is None else t[at] for t in (q, k, v, beta, g, gk)]
            out, after = recurrence(*part, 0.5, state[first])
            outs.append(out)
            expected[index[at].long()] = after
            start += n
        given = state.clone()
        found = torch_npu.npu_recurrent_gated_delta_rule(
            q,
            k,
            v,
            given,
            beta=beta,
            scale=0.5,
            actual_seq_lengths=torch.tensor(lengths, dtype=torch.int32),
            ssm_state_indices=index,
            num_accepted_tokens=accepted and torch.tensor(accepted, dtype=torch.int32),
            g=g,
            gk=gk,
        )
        close(found, torch.cat(outs).to(BF16))
        close(given, expected.to(BF16))


def test_recurrent_refuses(torch_npu):
    def call(length=2, dtype=BF16, heads=1, width=4, blocks=None, gate=torch.float32):
        q = torch.ones(length, heads, width, dtype=dtype)
        return torch_npu.npu_recurrent_gated_delta_rule(
            q,
            q,
            q,
            torch.ones(blocks or length, heads, width, width, dtype=dtype),
            scale=1.0,
            actual_seq_lengths=torch.tensor([length], dtype=torch.int32),
            ssm_state_indices=torch.arange(length, dtype=torch.int32),
            g=torch.zeros(length, heads, dtype=gate),
        )

    of = "recurrent_gated_delta_rule."
    refused(call, of + "L", 9)
    refused(call, of + "N", heads=257)
    refused(call, of + "D", width=257)
    refused(call, of + "dtype", dtype=torch.half)
    refused(call, of + "blocks", 3, blocks=2)
    refused(call, of + "gates", gate=BF16)


def test_chunk(torch_npu):
    draw = Draw(52)
    for _ in range(CASES):
        lengths = [draw.size(0, 2) for _ in range(draw.size(1, 2))]
        lengths[0] += 1
        tokens, nk = sum(lengths), draw.size(1, 2)
        nv = nk * draw.size(1, 2)
        q, k = (unit(draw.tensor(tokens, nk, 128)) for _ in range(2))
        v = draw.tensor(tokens, nv, 128, dtype=BF16)
        state = draw.tensor(len(lengths), nv, 128, 128, dtype=BF16)
        beta = draw.tensor(tokens, nv, dtype=BF16, low=0.01, high=0.99)
        g = draw.maybe(draw.tensor(tokens, nv, low=-1, high=0))
        out, final = torch_npu.npu_chunk_gated_delta_rule(
            q,
            k,
            v,
            beta=beta,
            initial_state=state,
            actual_seq_lengths=torch.tensor(lengths, dtype=torch.int32),
            scale=0.1,
            g=g,
        )
        start, outs = 0, []
        for i, n in enumerate(lengths):
            at = slice(start, start + n)
            start += n
            if n == 0:
                close(final[i], state[i])
                continue
            part = [t if t is None else t[at] for t in (q, k, v, beta, g)]
            one, after = recurrence(*part, None, 0.1, state[i])
            outs.append(one)
            close(final[i], after[-1].to(BF16))
        close(out, torch.cat(outs).to(BF16))


def test_chunk_refuses(torch_npu):
    def call(width=128, heads=1, values=1, dtype=BF16):
        q, v = torch.ones(2, heads, width, dtype=dtype), torch.ones(2, values, width, dtype=dtype)
        return torch_npu.npu_chunk_gated_delta_rule(
            q,
            q,
            v,
            beta=torch.ones(2, values, dtype=dtype),
            initial_state=torch.ones(1, values, width, width, dtype=dtype),
            actual_seq_lengths=torch.tensor([2], dtype=torch.int32),
            scale=1.0,
        )

    refused(call, "chunk_gated_delta_rule.D", 64)
    refused(call, "chunk_gated_delta_rule.N", heads=2, values=3)
    refused(call, "chunk_gated_delta_rule.N", heads=65, values=65)
    refused(call, "chunk_gated_delta_rule.dtype", dtype=torch.half)
