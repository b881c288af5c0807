// Sessions and the runner on a toy model, against the same model without a cache.
#include "cpu/session.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <map>

#include "base/error_test_util.h"
#include "cpu/bench.h"
#include "cpu/toy_model.h"

namespace tk {
namespace {

using Ids = std::vector<std::int64_t>;

RunnerOptions options(int threads = 2) {
  RunnerOptions o;
  o.threads = threads;
  o.n_blocks = 40;
  o.max_batch = 6;
  o.check = true;  // KV-24: freed blocks are poisoned
  return o;
}

Ids prompt(std::int64_t n, std::int64_t salt) {
  Ids ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back((salt * 31 + i * 7 + i * i) % toy::vocab);
  return ids;
}

void expect_logits(const TensorView& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.numel(), static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(element(got, static_cast<std::int64_t>(i)), want[i], tolerance) << "logit " << i;
}

Ids greedy_oracle(const Weights& weights, Ids ids, std::int64_t n, std::int64_t window = 0) {
  Ids out;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto logits = toy::oracle(weights, ids, window);
    out.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
    ids.push_back(out.back());
  }
  return out;
}

// KV-10, KV-13, KV-54: paged and packed equals no cache at all.
TEST(runner, prefill_and_decode_equal_the_model_without_a_cache) {
  for (const std::int64_t window : {0, 3})
    for (const bool rows : {true, false}) {
      EngineModel m = toy::model("f32", 4, window, rows);
      const Weights weights = m.weights;
      Runner r(std::move(m), options());
      Ids a = prompt(9, 1);
      Ids b = prompt(2, 2);
      const SeqId sa = r.open();
      const SeqId sb = r.open();
      const Piece pieces[] = {{sa, a}, {sb, b}};
      const Logits& logits = r.run(pieces, Phase::prefill);
      EXPECT_EQ(r.length(sa), 9);
      expect_logits(logits.row(0), toy::oracle(weights, a, window), 1e-4);
      expect_logits(logits.row(1), toy::oracle(weights, b, window), 1e-4);
      for (std::int64_t step = 0; step < 12; ++step) {
        a.push_back(step % toy::vocab);
        b.push_back((step * 5 + 1) % toy::vocab);
        const Piece next[] = {{sa, {&a.back(), 1}}, {sb, {&b.back(), 1}}};
        const Logits& l = r.run(next, Phase::decode);
        expect_logits(l.row(0), toy::oracle(weights, a, window), 1e-4);
        expect_logits(l.row(1), toy::oracle(weights, b, window), 1e-4);
        EXPECT_EQ(r.length(sb), static_cast<std::int64_t>(b.size()));  // KV-13
      }
    }
}

// KV-13, KV-40: what attention is told. The first decode sees the prompt and the token itself.
TEST(runner, lengths_and_slots_of_the_first_decode) {
  Runner r(toy::model(), options());
  const Ids a = prompt(9, 1);
  const Ids b = prompt(2, 2);
  const Piece pieces[] = {{r.open(), a}, {r.open(), b}};
  const auto input = [&](const char* name) {
    const Bound& bound = *r.last_bound();
    const int id = bound.plan.plan->input_id(name);
    std::vector<std::int64_t> v;
    const TensorView& t = bound.plan.views[static_cast<std::size_t>(id)];
    for (std::int64_t i = 0; i < t.numel(); ++i)
      v.push_back(static_cast<std::int64_t>(element(t, i)));
    return v;
  };
  r.run(pieces, Phase::prefill);
  EXPECT_EQ(input("kv_lens"), (Ids{9, 2}));
  EXPECT_EQ(input("query_lens"), (Ids{9, 11}));
  EXPECT_EQ(input("position_ids"), (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1}));
  EXPECT_EQ(input("slot_mapping"), (Ids{4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 17}));
  EXPECT_EQ(input("block_table"), (Ids{1, 2, 3, 0, 4, 0, 0, 0}));
  EXPECT_EQ(input("logit_rows"), (Ids{8, 10}));
  const std::int64_t next = 5;
  const Ids c = prompt(1, 3);
  const Piece third[] = {{r.open(), c}};
  r.run(third, Phase::prefill);
  // Five sequences are padded to six: the last sees nothing and is not written.
  std::vector<Piece> all{
      {pieces[0].seq, {&next, 1}}, {pieces[1].seq, {&next, 1}}, {third[0].seq, {&next, 1}}};
  for (int i = 0; i < 2; ++i) {
    const Piece p{r.open(), c};
    r.run({&p, 1}, Phase::prefill);
    all.push_back({p.seq, {&next, 1}});
  }
  r.run(all, Phase::decode);
  EXPECT_EQ(input("kv_lens"), (Ids{10, 3, 2, 2, 2, 0}));
  EXPECT_EQ(input("query_lens"), (Ids{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(input("position_ids"), (Ids{9, 2, 1, 1, 1, 0}));
  EXPECT_EQ(input("slot_mapping"), (Ids{13, 18, 21, 25, 29, 1}));  // the last: of the null block
  EXPECT_EQ(r.length(pieces[0].seq), 10);
}

TEST(runner, all_rows_of_a_prefill) {
  for (const bool rows : {true, false}) {
    EngineModel m = toy::model("f32", 4, 0, rows);
    const Weights weights = m.weights;
    Runner r(std::move(m), options());
    const Ids a = prompt(6, 1);
    const Ids b = prompt(3, 2);
    const Piece pieces[] = {{r.open(), a}, {r.open(), b}};
    const Logits& logits = r.run(pieces, Phase::prefill, LogitRows::all);
    ASSERT_EQ(logits.rows.size(), 9u);
    for (std::int64_t i = 0; i < 9; ++i) {
      const Ids& ids = i < 6 ? a : b;
      const std::int64_t n = i < 6 ? i + 1 : i - 5;
      expect_logits(logits.row(i), toy::oracle(weights, Ids(ids.begin(), ids.begin() + n)), 1e-4);
    }
  }
}

TEST(runner, a_prompt_in_parts_equals_a_prompt_at_once) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  Runner r(std::move(m), options());
  const Ids ids = prompt(13, 3);
  const SeqId s = r.open();
  for (const auto& [from, to] : {std::pair(0, 5), std::pair(5, 6), std::pair(6, 13)}) {
    const Piece piece{s, std::span(ids).subspan(static_cast<std::size_t>(from),
                                                static_cast<std::size_t>(to - from))};
    const Logits& l = r.run({&piece, 1}, Phase::prefill);
    expect_logits(l.row(0), toy::oracle(weights, Ids(ids.begin(), ids.begin() + to)), 1e-4);
  }
}

// KV-15: bit for bit, in both phases, whatever runs beside and however many threads there are.
TEST(runner, a_batch_of_unequal_lengths_equals_one_by_one_bitwise) {
  for (const char* dtype : {"f32", "bf16"}) {
    const auto row = [](const Logits& l, std::int64_t i) {
      std::vector<double> v;
      for (std::int64_t j = 0; j < toy::vocab; ++j) v.push_back(element(l.row(i), j));
      return v;
    };
    std::vector<std::vector<std::vector<double>>> alone;  // [request][step]
    const std::vector<std::int64_t> lengths{5, 1, 17, 8, 3};
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      Runner r(toy::model(dtype), options(1));
      const Ids ids = prompt(lengths[b], static_cast<std::int64_t>(b));
      const Piece p{r.open(), ids};
      std::vector<std::vector<double>> steps{row(r.run({&p, 1}, Phase::prefill), 0)};
      for (std::int64_t s = 0; s < 6; ++s) {
        const std::int64_t id = s * 3 + static_cast<std::int64_t>(b);
        const Piece q{p.seq, {&id, 1}};
        steps.push_back(row(r.run({&q, 1}, Phase::decode), 0));
      }
      alone.push_back(steps);
    }
    Runner r(toy::model(dtype), options(3));
    std::vector<Ids> ids;
    std::vector<Piece> pieces;
    for (std::size_t b = 0; b < lengths.size(); ++b)
      ids.push_back(prompt(lengths[b], static_cast<std::int64_t>(b)));
    for (const Ids& i : ids) pieces.push_back({r.open(), i});
    const Logits& l = r.run(pieces, Phase::prefill);
    for (std::size_t b = 0; b < lengths.size(); ++b)
      EXPECT_EQ(row(l, static_cast<std::int64_t>(b)), alone[b][0]) << dtype << " prefill " << b;
    for (std::int64_t s = 0; s < 6; ++s) {
      Ids next;
      for (std::size_t b = 0; b < lengths.size(); ++b)
        next.push_back(s * 3 + static_cast<std::int64_t>(b));
      for (std::size_t b = 0; b < lengths.size(); ++b) pieces[b].tokens = {&next[b], 1};
      const Logits& d = r.run(pieces, Phase::decode);
      EXPECT_EQ(r.stats().padded_batch, 6);  // the bucket of 5, cut at max_batch
      for (std::size_t b = 0; b < lengths.size(); ++b)
        EXPECT_EQ(row(d, static_cast<std::int64_t>(b)), alone[b][static_cast<std::size_t>(s) + 1])
            << dtype << " step " << s << " request " << b;
    }
  }
}

TEST(runner, errors_leave_everything_as_it_was) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  RunnerOptions o = options();
  o.n_blocks = 5;
  o.max_len = 14;
  Runner r(std::move(m), o);
  Ids ids = prompt(7, 1);
  const SeqId s = r.open();
  const auto run = [&](SeqId seq, const Ids& tokens) {
    const Piece p{seq, tokens};
    return code_of([&] { r.run({&p, 1}, Phase::prefill); });
  };
  EXPECT_EQ(run(s, ids), "none");
  EXPECT_EQ(run(s, {toy::vocab}), "TK0510");
  EXPECT_EQ(run(s, {-1}), "TK0510");
  EXPECT_EQ(run(s, {}), "TK0511");
  EXPECT_EQ(run(s, prompt(8, 1)), "TK0512");
  const SeqId other = r.open();
  EXPECT_EQ(run(other, prompt(9, 1)), "TK0513");  // 2 blocks of 4 are free
  EXPECT_EQ(r.length(s), 7);
  EXPECT_EQ(r.pool().n_free(), 2);
  ids.push_back(3);
  const Piece p{s, {&ids.back(), 1}};
  expect_logits(r.run({&p, 1}, Phase::decode).row(0), toy::oracle(weights, ids), 1e-4);
  r.close(other);
  r.close(s);
  EXPECT_EQ(r.pool().n_free(), 4);
}

TEST(runner, truncate_forgets) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  Runner r(std::move(m), options());
  Ids ids = prompt(11, 1);
  const SeqId s = r.open();
  const Piece p{s, ids};
  r.run({&p, 1}, Phase::prefill);
  r.truncate(s, 5);
  EXPECT_EQ(r.blocks(s).size(), 2u);
  ids.resize(5);
  ids.push_back(9);
  const Piece q{s, {&ids.back(), 1}};
  expect_logits(r.run({&q, 1}, Phase::decode).row(0), toy::oracle(weights, ids), 1e-4);
}

TEST(runner, nan_logits_are_an_error_when_checked) {
  EngineModel m = toy::model();
  Tensor head = contiguous(m.weights.at("head"));
  set_element(head, 3 * toy::dim, NAN);
  m.weights["head"] = head;
  Runner r(std::move(m), options());
  const Ids ids = prompt(3, 1);
  const Piece p{r.open(), ids};
  EXPECT_EQ(code_of([&] { r.run({&p, 1}, Phase::prefill); }), "TK0517");
}

TEST(runner, options_and_graphs_that_cannot_be) {
  const auto with = [](auto change) {
    return code_of([&] {
      RunnerOptions o = options();
      change(&o);
      Runner r(toy::model(), o);
    });
  };
  EXPECT_EQ(with([](RunnerOptions* o) { o->threads = -1; }), "TK0518");
  EXPECT_EQ(with([](RunnerOptions* o) { o->threads = 100000; }), "TK0518");
  EXPECT_EQ(with([](RunnerOptions* o) { o->max_batch = 0; }), "TK0518");
  EXPECT_EQ(with([](RunnerOptions* o) { o->max_tokens = 0; }), "TK0518");
  EXPECT_EQ(with([](RunnerOptions* o) { o->max_len = 100; }), "TK0518");  // the model knows 64
  EXPECT_EQ(with([](RunnerOptions* o) { o->n_blocks = 1; }), "TK0514");
  EXPECT_EQ(with([](RunnerOptions* o) { o->n_blocks = INT64_MAX; }), "TK0514");
  EXPECT_EQ(with([](RunnerOptions* o) { o->n_blocks = 0, o->cache_bytes = 10; }), "TK0514");
  const auto graph = [](const std::string& text) {
    return code_of([&] {
      EngineModel m = toy::model();
      m.prefill = parse_graph(text);
      m.decode = m.prefill.clone();
      Runner r(std::move(m), options());
    });
  };
  EXPECT_EQ(graph("graph @f(%input_ids: i64[T]) {\n  %0 = aten.add(%input_ids) {other=1}\n"
                  "  return %0\n}"),
            "TK0519");
  EXPECT_EQ(graph("graph @f(%x: f32[T, 4]) {\n  state %s0: f32[NB, 4, 2] \"k\"\n"
                  "  %0 = aten.add(%x) {other=1}\n  return %0\n}"),
            "TK0519");
  EngineModel m = toy::model();
  m.block_size = 8;  // the graph says 4
  EXPECT_EQ(code_of([&] { Runner r(std::move(m), options()); }), "TK0519");
}

// Fused for an NPU, prefill may attend to the prompt's own keys: it takes whole prompts only.
TEST(runner, a_prompt_in_parts_is_refused_by_a_graph_of_whole_prompts) {
  EngineModel m = toy::model();
  std::string text = print(m.prefill);
  const std::string paged = "tk.paged_attention(";
  for (std::size_t at = text.find(paged); at != std::string::npos; at = text.find(paged)) {
    const std::size_t end = text.find(')', at);
    const std::string args = text.substr(at + paged.size(), end - at - paged.size());
    const std::string q = args.substr(0, args.find(','));
    const std::size_t rest = text.find('}', end);
    text.replace(at, rest + 1 - at,
                 cat("npu.npu_fused_infer_attention_score_v2(", q, ", ", q, ", ", q,
                     ", none, none, none, %query_lens, %query_lens) {num_query_heads=", toy::heads,
                     ", num_key_value_heads=", toy::heads, ", input_layout=\"TND\"}"));
    const std::size_t line = text.rfind('\n', at);
    const std::size_t equals = text.find(" = ", line);
    text.insert(equals, ", %lse" + std::to_string(at));
  }
  m.prefill = parse_graph(text);
  Runner r(std::move(m), options());
  const SeqId s = r.open();
  const Ids first = prompt(5, 1);
  const Piece piece[] = {{s, first}};
  r.run(piece, Phase::prefill);
  EXPECT_EQ(code_of([&] { r.run(piece, Phase::prefill); }), "TK0515");
}

TEST(runner, buckets) {
  RunnerOptions o = options();
  o.max_batch = 24;
  Runner r(toy::model(), o);
  const std::int64_t want[][2] = {{1, 1}, {2, 2},  {3, 3},   {4, 4},  {5, 8},
                                  {8, 8}, {9, 16}, {17, 24}, {24, 24}};
  for (const auto& [batch, bucket] : want) EXPECT_EQ(r.bucket(batch), bucket);
}

// GM-61: one plan for all lengths of a bucket, whatever runs side by side; a longer prompt is not
// padded.
TEST(runner, gm_61_prompts_padded_to_a_bucket) {
  for (const bool rows : {true, false}) {
    EngineModel m = toy::model("f32", 4, 0, rows);
    m.prefill_buckets = {8, 12};
    const Weights weights = m.weights;
    Runner r(std::move(m), options());
    std::int64_t made = 0;
    for (const std::int64_t n : {8, 1, 5, 7, 3}) {
      const Ids ids = prompt(n, n);
      const SeqId s = r.open();
      const Piece piece{s, ids};
      expect_logits(r.run({&piece, 1}, Phase::prefill).row(0), toy::oracle(weights, ids), 1e-4);
      const std::int64_t next[] = {9};
      const Piece one{s, next};
      Ids longer = ids;
      longer.push_back(9);
      expect_logits(r.run({&one, 1}, Phase::decode).row(0), toy::oracle(weights, longer), 1e-4);
      r.close(s);
      if (n == 5) made = r.engine(Phase::prefill).n_made();
    }
    // Tables of one and of two blocks.
    EXPECT_EQ(r.engine(Phase::prefill).n_made(), made);
    const Ids a = prompt(6, 1);
    const Ids b = prompt(5, 2);
    const Ids c = prompt(13, 3);
    const Piece two[] = {{r.open(), a}, {r.open(), b}};
    const Logits& both = r.run(two, Phase::prefill, LogitRows::all);
    for (std::int64_t i = 0; i < 11; ++i) {
      const Ids& ids = i < 6 ? a : b;
      const std::int64_t n = i < 6 ? i + 1 : i - 5;
      expect_logits(both.row(i), toy::oracle(weights, Ids(ids.begin(), ids.begin() + n)), 1e-4);
    }
    const Piece third{r.open(), c};
    expect_logits(r.run({&third, 1}, Phase::prefill).row(0), toy::oracle(weights, c), 1e-4);
    EXPECT_EQ(r.stats().padded_batch, 1);
  }
  EngineModel m = toy::model();
  m.prefill_buckets = {8, 8};
  EXPECT_EQ(code_of([&] { Runner r(std::move(m), options()); }), "TK0518");
}

// Requests that come and go at random; each answer equals the oracle's, and at the end the pool is
// whole again (KV-24).
TEST(session, random_arrivals_and_cancellations) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  RunnerOptions o = options();
  o.n_blocks = 14;   // so few that requests have to wait
  o.max_tokens = 7;  // and prompts are cut
  Session session(std::move(m), o);
  std::mt19937 random(5);
  std::map<RequestId, Ids> answers, expected;
  std::map<RequestId, Finish> finished;
  int added = 0;
  bool waited = false;
  for (int step = 0; step < 400; ++step) {
    if (added < 25 && random() % 3 == 0) {
      const Ids p = prompt(1 + static_cast<std::int64_t>(random() % 20), added);
      RequestParams params;
      params.max_new_tokens = 1 + static_cast<std::int64_t>(random() % 8);
      const RequestId id = session.add(p, params);
      expected[id] = greedy_oracle(weights, p, params.max_new_tokens);
      ++added;
    }
    if (added > 0 && random() % 40 == 0) {
      const auto id = static_cast<RequestId>(1 + random() % static_cast<unsigned>(added));
      if (finished.count(id) == 0) {
        session.cancel(id);
        expected.erase(id);
        answers.erase(id);
      }
    }
    for (const TokenEvent& e : session.step().events) {
      ASSERT_EQ(expected.count(e.request), 1u) << "a token of a request that is gone";
      answers[e.request].push_back(e.token);
      if (e.finish != Finish::no) finished[e.request] = e.finish;
    }
    waited |= session.n_waiting() > 0 && session.n_running() > 0;
  }
  EXPECT_TRUE(session.step().idle);
  EXPECT_EQ(answers, expected);
  EXPECT_TRUE(waited);
  EXPECT_EQ(session.runner().pool().n_free(), 13);
}

// KV-24: a hundred requests later the pool is whole and nothing has grown.
TEST(session, a_long_run_does_not_grow) {
  RunnerOptions o = options();
  o.engine.max_bound = 4;
  Session session(toy::model(), o);
  RequestParams params;
  params.max_new_tokens = 5;
  const auto serve = [&](int n) {
    for (int i = 0; i < n; ++i) {
      session.add(prompt(3 + i % 7, i), params);
      if (i % 3 == 2)
        while (!session.step().idle) {
        }
    }
    while (!session.step().idle) {
    }
    return mallinfo2().uordblks;
  };
  const std::size_t before = serve(40);
  const std::size_t after = serve(100);
  EXPECT_LT(after, before + (64U << 10));
  EXPECT_EQ(session.runner().pool().n_free(), session.runner().pool().size() - 1);
}

TEST(session, stop_ids_and_lengths_end_a_request) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  Session session(std::move(m), options());
  const Ids p = prompt(4, 1);
  const Ids all = greedy_oracle(weights, p, 8);
  RequestParams params;
  params.max_new_tokens = 8;
  EXPECT_EQ(session.finish(session.add(p, params)), all);
  params.stop_ids = {all[2]};
  const auto first = std::find(all.begin(), all.end(), all[2]) - all.begin();
  EXPECT_EQ(session.finish(session.add(p, params)), Ids(all.begin(), all.begin() + first + 1));
  // The length limit: 64 positions, one more token can be chosen.
  params.stop_ids = {};
  params.max_new_tokens = 1000;
  const RequestId id = session.add(prompt(60, 2), params);
  EXPECT_EQ(session.finish(id).size(), 5u);
  EXPECT_EQ(session.n_running(), 0);
}

TEST(session, sampling_does_not_depend_on_company) {
  RequestParams params;
  params.sampling = {.temperature = 1.0, .top_k = 20, .top_p = 0.9, .seed = 42};
  params.max_new_tokens = 10;
  Session alone(toy::model(), options());
  const Ids want = alone.finish(alone.add(prompt(5, 1), params));
  Session crowd(toy::model(), options(1));
  RequestParams other = params;
  for (std::uint64_t i = 0; i < 3; ++i) {
    other.sampling.seed = i;
    crowd.add(prompt(3 + static_cast<std::int64_t>(i), 7), other);
  }
  EXPECT_EQ(crowd.finish(crowd.add(prompt(5, 1), params)), want);
}

TEST(session, requests_that_cannot_be) {
  RunnerOptions o = options();
  o.n_blocks = 5;
  o.max_len = 16;
  Session s(toy::model(), o);
  EXPECT_EQ(code_of([&] { s.add({}); }), "TK0511");
  EXPECT_EQ(code_of([&] { s.add({1, toy::vocab}); }), "TK0510");
  EXPECT_EQ(code_of([&] { s.add({1, -2}); }), "TK0510");
  EXPECT_EQ(code_of([&] { s.add(prompt(17, 1)); }), "TK0512");
  RequestParams params;
  params.sampling.top_p = 2;
  EXPECT_EQ(code_of([&] { s.add({1}, params); }), "TK0516");
  params = {};
  params.max_new_tokens = 0;
  EXPECT_EQ(code_of([&] { s.add({1}, params); }), "TK0516");
  EXPECT_TRUE(s.step().idle);
  EXPECT_EQ(s.finish(s.add(prompt(16, 1))).size(), 1u);
}

TEST(session, a_request_larger_than_the_pool_is_refused_at_once) {
  RunnerOptions o = options();
  o.n_blocks = 3;
  Runner probe(toy::model(), o);
  EXPECT_EQ(probe.max_len(), 8);  // what the pool holds
}

TEST(session, a_failed_request_does_not_harm_the_others) {
  EngineModel m = toy::model();
  const Weights weights = m.weights;
  Tensor embed = contiguous(m.weights.at("embed"));
  for (std::int64_t i = 0; i < toy::dim; ++i) set_element(embed, 49 * toy::dim + i, NAN);
  m.weights["embed"] = embed;
  RunnerOptions o = options();
  o.check = false;
  Session s(std::move(m), o);
  RequestParams params;
  params.max_new_tokens = 4;
  const Ids good = {1, 2, 3};
  const RequestId a = s.add(good, params);
  const RequestId b = s.add({1, 49}, params);
  Ids answer;
  std::string error;
  for (StepReport r = s.step(); !r.idle; r = s.step())
    for (const TokenEvent& e : r.events) {
      if (e.request == b) error += e.error;
      if (e.request == a) answer.push_back(e.token);
    }
  EXPECT_EQ(error, "the model produced NaN logits");
  EXPECT_EQ(answer, greedy_oracle(weights, good, 4));
  EXPECT_EQ(s.runner().pool().n_free(), s.runner().pool().size() - 1);
  EXPECT_EQ(code_of([&] { s.finish(s.add({1, 49}, params)); }), "TK0517");
}

TEST(bench, reports_rates_and_leaves_no_sequence) {
  Runner r(toy::model(), options());
  BenchOptions o;
  o.prompt = 12;
  o.context = 5;
  o.gen = 6;
  o.batch = 3;
  o.reps = 2;
  const BenchResult b = bench(&r, o);
  EXPECT_EQ(b.prefill.wall.size(), 2u);
  EXPECT_EQ(b.decode.cpu.size(), 2u);
  EXPECT_GT(median(b.decode.wall), 0);
  EXPECT_GT(b.decode_bytes, 0);
  EXPECT_GT(b.peak_rss_bytes, 0);
  EXPECT_NE(b.json().find("\"decode_tok_s\": ["), std::string::npos);
  EXPECT_EQ(r.pool().n_free(), r.pool().size() - 1);
  o.batch = 7;
  EXPECT_EQ(code_of([&] { bench(&r, o); }), "TK0518");
  o.batch = 1;
  o.context = 60;
  EXPECT_EQ(code_of([&] { bench(&r, o); }), "TK0512");
}

}  // namespace
}  // namespace tk
