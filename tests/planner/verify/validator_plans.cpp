// SPDX-License-Identifier: Apache-2.0
#include "planner/verify/validator_plans.hpp"

#include <algorithm>
#include <stdexcept>

#include "stash/error.hpp"

namespace stash::planner::testing {
namespace {

constexpr std::int64_t batch = 4;

std::int64_t round_up(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::int64_t product(const std::vector<std::int64_t>& dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) {
    n *= d;
  }
  return n;
}

class graph_writer {
 public:
  storage_id map(const std::string& name, storage_role role, dtype type, std::vector<std::int64_t> shape,
                 double density = 1.0) {
    storage s;
    s.name = name;
    s.role = role;
    s.type = type;
    s.bytes_per_sample = product(shape) * static_cast<std::int64_t>(size_of(type));
    s.shape = std::move(shape);
    s.density = density;
    return add(std::move(s));
  }

  storage_id fixed(const std::string& name, storage_role role, std::vector<std::int64_t> shape) {
    storage s;
    s.name = name;
    s.role = role;
    s.fixed_bytes = product(shape) * 4;
    s.shape = std::move(shape);
    return add(std::move(s));
  }

  struct trainable {
    storage_id weight, gradient;
  };

  trainable weight(const std::string& name, const std::vector<std::int64_t>& shape) {
    const trainable t{fixed(name, storage_role::weight, shape),
                      fixed(name + ".gradient", storage_role::weight_gradient, shape)};
    const storage_id momentum = fixed(name + ".momentum", storage_role::momentum, shape);
    update_.parameters.insert(update_.parameters.end(), {t.weight, t.gradient, momentum});
    update_.parameters_written.insert(update_.parameters_written.end(), {t.weight, momentum});
    return t;
  }

  op& forward(const std::string& name, op_kind kind, std::vector<tensor_ref> inputs,
              std::vector<tensor_ref> outputs) {
    op o;
    o.name = name;
    o.kind = kind;
    o.inputs = std::move(inputs);
    o.outputs = std::move(outputs);
    g_.ops.push_back(std::move(o));
    return g_.ops.back();
  }

  op& backward(const std::string& name, op_kind kind, std::string_view forward_op,
               std::vector<tensor_ref> inputs, std::vector<tensor_ref> outputs,
               alternative_list alternatives = {}) {
    op& o = forward(name, kind, std::move(inputs), std::move(outputs));
    o.stage = op_stage::backward;
    o.alternatives = std::move(alternatives);
    for (const op_id i : g_.ops.ids()) {
      if (g_.ops[i].name != forward_op) continue;
      o.forward_op = i;
      o.attributes = g_.ops[i].attributes;
    }
    return o;
  }

  graph finish() {
    update_.name = "update";
    update_.kind = op_kind::sgd_update;
    update_.stage = op_stage::update;
    g_.ops.push_back(update_);
    g_.name = "test";
    g_.batch = batch;
    g_.classes = 10;
    return g_;
  }

  graph& get() { return g_; }

 private:
  storage_id add(storage s) {
    g_.storages.push_back(std::move(s));
    return storage_id(g_.storages.size()) - 1;
  }

  graph g_;
  op update_;
};

tensor_ref all(storage_id s) {
  return {s, 0, 0};
}

stash_alternative alternative(const std::string& form,
                              const std::vector<std::pair<tensor_ref, need>>& reads) {
  stash_alternative a{form, {}};
  for (const auto& [ref, what] : reads) {
    a.reads.push_back({ref.storage, what, ref});
  }
  return a;
}

op_attributes convolution(std::int64_t out, std::int32_t kernel, std::int32_t pad) {
  op_attributes a;
  a.kernel_h = a.kernel_w = kernel;
  a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = pad;
  a.out_features = out;
  a.bias = false;
  return a;
}

}  // namespace

graph make_test_graph() {
  graph_writer w;
  using role = storage_role;
  const storage_id images = w.map("images", role::image, dtype::u8, {8, 8, 3});
  const storage_id labels = w.map("labels", role::label, dtype::s32, {1});
  const storage_id s = w.map("s", role::feature_map, dtype::f32, {8, 8, 8}, 0.5);
  const storage_id p = w.map("p", role::feature_map, dtype::f32, {4, 4, 8}, 0.75);
  const storage_id index = w.map("index", role::auxiliary, dtype::u8, {4, 4, 8});
  w.get().storages.back().window_taps = 4;
  const storage_id c = w.map("c", role::feature_map, dtype::f32, {4, 4, 8});
  const storage_id b = w.map("b", role::feature_map, dtype::f32, {4, 4, 8}, 0.5);
  const storage_id k = w.map("k", role::feature_map, dtype::f32, {4, 4, 16}, 0.5);
  const storage_id logits = w.map("logits", role::feature_map, dtype::f32, {10});
  const storage_id probabilities = w.map("probabilities", role::feature_map, dtype::f32, {10});
  const storage_id d_logits = w.map("d_logits", role::gradient, dtype::f32, {10});
  const storage_id dk = w.map("dk", role::gradient, dtype::f32, {4, 4, 16});
  const storage_id db = w.map("db", role::gradient, dtype::f32, {4, 4, 8});
  const storage_id dp = w.map("dp", role::gradient, dtype::f32, {4, 4, 8});
  const storage_id dp2 = w.map("dp2", role::gradient, dtype::f32, {4, 4, 8});
  const storage_id ds = w.map("ds", role::gradient, dtype::f32, {8, 8, 8});
  const auto w1 = w.weight("conv1/weight", {8, 3, 3, 3});
  const auto w2 = w.weight("conv2/weight", {8, 8, 3, 3});
  const auto w3 = w.weight("conv3/weight", {8, 8, 3, 3});
  const auto w4 = w.weight("conv4/weight", {8, 8, 1, 1});
  const auto wd = w.weight("dense/weight", {10, 256});
  const auto bd = w.weight("dense/bias", {10});
  const auto scale = w.weight("norm/scale", {8});
  const auto shift = w.weight("norm/shift", {8});
  const storage_id mean = w.fixed("norm/mean", role::statistic, {8});
  const storage_id variance = w.fixed("norm/variance", role::statistic, {8});
  const storage_id saved_mean = w.fixed("norm/saved_mean", role::saved_statistic, {8});
  const storage_id saved_inverse = w.fixed("norm/saved_inverse", role::saved_statistic, {8});
  const tensor_ref left{k, 0, 8}, right{k, 8, 8}, dleft{dk, 0, 8}, dright{dk, 8, 8};

  const auto conv = [&](const std::string& name, tensor_ref x, tensor_ref y, storage_id weight,
                        std::int32_t kernel) {
    op& o = w.forward(name, op_kind::conv2d, {x}, {y});
    o.attributes = convolution(8, kernel, kernel / 2);
    o.parameters = {weight};
  };
  conv("conv1", all(images), all(s), w1.weight, 3);
  w.get().ops.back().workspace_bytes = 4096;
  w.forward("relu1", op_kind::relu, {all(s)}, {all(s)});
  op& pool = w.forward("pool1", op_kind::max_pool, {all(s)}, {all(p)});
  pool.optional_outputs = {index};
  pool.attributes.kernel_h = pool.attributes.kernel_w = 2;
  pool.attributes.stride_h = pool.attributes.stride_w = 2;
  conv("conv2", all(p), all(c), w2.weight, 3);
  op& norm = w.forward("norm", op_kind::batch_norm, {all(c)}, {all(b)});
  norm.attributes.fused_relu = true;
  norm.parameters = {scale.weight, shift.weight, mean, variance};
  norm.parameters_written = {saved_mean, saved_inverse};
  w.get().recipes = {{b, {c}, {op_id(w.get().ops.size()) - 1}}};
  conv("conv3", all(b), left, w3.weight, 3);
  w.forward("relu3", op_kind::relu, {left}, {left});
  conv("conv4", all(p), right, w4.weight, 1);
  w.forward("relu4", op_kind::relu, {right}, {right});
  op& dense = w.forward("dense", op_kind::dense, {all(k)}, {all(logits)});
  dense.attributes.out_features = 10;
  dense.parameters = {wd.weight, bd.weight};
  w.forward("loss", op_kind::softmax_cross_entropy, {all(logits), all(labels)}, {all(probabilities)});

  w.backward("loss/b", op_kind::softmax_cross_entropy_backward, "loss", {all(labels)}, {all(d_logits)},
             {alternative("from_probabilities", {{all(probabilities), need::exact_value}})});
  w.backward("dense/w", op_kind::dense_backward_weights, "dense", {all(d_logits)}, {},
             {alternative("from_x", {{all(k), need::value}})})
      .parameters_written = {wd.gradient, bd.gradient};
  w.backward("dense/d", op_kind::dense_backward_data, "dense", {all(d_logits)}, {all(dk)}).parameters = {
      wd.weight};
  const auto relu_back = [&](const std::string& layer, tensor_ref dy, tensor_ref y) {
    w.backward(layer + "/b", op_kind::relu_backward, layer, {dy}, {dy},
               {alternative("from_y", {{y, need::sign}})});
  };
  const auto conv_back_weights = [&](const std::string& layer, tensor_ref dy, tensor_ref x,
                                     storage_id gradient) {
    w.backward(layer + "/w", op_kind::conv2d_backward_weights, layer, {dy}, {},
               {alternative("from_x", {{x, need::value}})})
        .parameters_written = {gradient};
  };
  const auto conv_back_data = [&](const std::string& layer, tensor_ref dy, tensor_ref dx, storage_id weight) {
    w.backward(layer + "/d", op_kind::conv2d_backward_data, layer, {dy}, {dx}).parameters = {weight};
  };
  relu_back("relu4", dright, right);
  conv_back_weights("conv4", dright, all(p), w4.gradient);
  conv_back_data("conv4", dright, all(dp), w4.weight);
  relu_back("relu3", dleft, left);
  conv_back_weights("conv3", dleft, all(b), w3.gradient);
  conv_back_data("conv3", dleft, all(db), w3.weight);
  op& norm_back = w.backward("norm/b", op_kind::batch_norm_backward, "norm", {all(db)}, {all(db)},
                             {alternative("from_x", {{all(c), need::exact_value}}),
                              alternative("from_x_and_y", {{all(c), need::value}, {all(b), need::sign}})});
  norm_back.parameters = {scale.weight, shift.weight, saved_mean, saved_inverse};
  norm_back.parameters_written = {scale.gradient, shift.gradient};
  conv_back_weights("conv2", all(db), all(p), w2.gradient);
  conv_back_data("conv2", all(db), all(dp2), w2.weight);
  w.backward("p/accumulate", op_kind::accumulate, "", {all(dp), all(dp2)}, {all(dp)});
  w.backward("pool1/b", op_kind::max_pool_backward, "pool1", {all(dp)}, {all(ds)},
             {alternative("from_index", {{all(index), need::window}}),
              alternative("from_x", {{all(s), need::exact_value}})});
  relu_back("relu1", all(ds), all(s));
  conv_back_weights("conv1", all(ds), all(images), w1.gradient);
  return w.finish();
}

test_plan::test_plan(policy chosen) {
  p.network = make_test_graph();
  p.chosen_policy = chosen;
  p.choices.resize(p.network.storages.size());
  for (const op& o : p.network.ops) {
    p.alternative.push_back(o.alternatives.empty() ? -1 : 0);
  }
  choose("images", stash_kind::raw);
  choose("probabilities", stash_kind::raw);
}

storage_id test_plan::storage_of(std::string_view name) const {
  for (const storage_id i : p.network.storages.ids()) {
    if (p.network.storages[i].name == name) return i;
  }
  throw std::logic_error("no storage " + std::string(name));
}

op_id test_plan::op_of(std::string_view name) const {
  for (const op_id i : p.network.ops.ids()) {
    if (p.network.ops[i].name == name) return i;
  }
  throw std::logic_error("no op " + std::string(name));
}

buffer_id test_plan::id(const std::string& name) {
  const auto [entry, fresh] = names.try_emplace(name, buffer_id(p.buffers.size()));
  if (!fresh) return entry->second;
  buffer b;
  const bool encoded = name.ends_with(".enc");
  b.storage = storage_of(name.substr(0, name.find_first_of(".#")));
  const storage& s = p.network.at(b.storage);
  if (encoded) {
    const stash_choice& c = p.choices[b.storage];
    b.form = buffer_form::encoded;
    const std::int64_t elements = product(s.shape) * batch;
    const double density = std::min(1.0, c.density * (1.0 + p.slot_margin));
    b.bytes =
        round_up(static_cast<std::int64_t>(encoded_bytes_at_density(c.stored, s.type, elements, density)));
  } else {
    b.bytes = round_up(s.bytes(batch));
  }
  p.buffers.push_back(b);
  return entry->second;
}

std::size_t test_plan::run_step(std::string_view op) const {
  const op_id expected = op_of(op);
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].kind == step_kind::run && p.steps[i].op == expected) return i;
  }
  throw std::logic_error("no step runs " + std::string(op));
}

std::size_t test_plan::step_of(step_kind kind, std::string_view storage, int n) const {
  const storage_id expected = storage_of(storage);
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].kind == kind && p.steps[i].storage == expected && n-- == 0) return i;
  }
  throw std::logic_error("no such step for " + std::string(storage));
}

void test_plan::choose(std::string_view storage, stash_kind kind, encoding stored, double density) {
  stash_choice& c = choice(storage);
  c.kind = kind;
  c.stored = stored;
  c.recipe = kind == stash_kind::recompute ? recipe_id(0) : recipe_id();
  c.density = density;
  const auto& target = p.network.at(storage_of(storage));
  c.bytes_before = target.role == storage_role::auxiliary ? 0 : target.bytes(batch);
  c.bytes_after = 0;
  const bool stores = kind == stash_kind::encoded ||
                      (kind == stash_kind::recompute && stored.kind == encoding_kind::sign_mask);
  if (kind == stash_kind::raw) c.bytes_after = target.bytes(batch);
  if (!stores) return;
  const double margined = std::min(1.0, density * (1.0 + p.slot_margin));
  try {
    c.bytes_after = static_cast<std::int64_t>(
        encoded_bytes_at_density(stored, target.type, product(target.shape) * batch, margined));
  } catch (const error&) {
    return;  // a form that has no meaning here, for a test
  }
}

void test_plan::run(std::string_view op, const std::vector<std::string>& stash,
                    const std::vector<std::string>& optional) {
  step s;
  s.op = op_of(op);
  const auto& o = p.network.op_at(s.op);
  for (const tensor_ref& ref : o.inputs) {
    s.inputs.push_back(id(p.network.at(ref.storage).name));
  }
  for (const tensor_ref& ref : o.outputs) {
    s.outputs.push_back(id(p.network.at(ref.storage).name));
  }
  for (const std::string& name : stash) {
    s.stash.push_back(id(name));
  }
  s.optional_outputs.assign(o.optional_outputs.size(), no_id);
  for (std::size_t i = 0; i < optional.size(); ++i) {
    s.optional_outputs[i] = id(optional[i]);
  }
  p.steps.push_back(s);
}

void test_plan::encode(std::string_view storage) {
  const std::string name(storage);
  step s;
  s.kind = step_kind::encode;
  s.storage = storage_of(storage);
  s.inputs = {id(name)};
  s.outputs = {id(name + ".enc")};
  p.steps.push_back(s);
}

void test_plan::decode(std::string_view storage, const std::string& to) {
  step s;
  s.kind = step_kind::decode;
  s.storage = storage_of(storage);
  s.inputs = {id(std::string(storage) + ".enc")};
  s.outputs = {id(to)};
  p.steps.push_back(s);
}

void test_plan::recompute(std::string_view storage, std::string_view op, const std::vector<std::string>& from,
                          const std::string& to) {
  step s;
  s.kind = step_kind::recompute;
  s.storage = storage_of(storage);
  s.op = op_of(op);
  for (const std::string& name : from) {
    s.inputs.push_back(id(name));
  }
  s.outputs = {id(to)};
  p.steps.push_back(s);
}

void test_plan::finish() {
  id_vector<buffer_id, bool> seen(p.buffers.size(), false);
  const auto touch = [&](const std::vector<buffer_id>& list, std::size_t at_step) {
    for (const buffer_id i : list) {
      if (!i.valid()) continue;
      const bool is_input = p.network.at(p.buffers[i].storage).role <= storage_role::label;
      if (!seen[i]) p.buffers[i].first_step = is_input ? 0 : static_cast<std::int32_t>(at_step);
      p.buffers[i].last_step = static_cast<std::int32_t>(at_step);
      seen[i] = true;
    }
  };
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    touch(p.steps[i].inputs, i);
    touch(p.steps[i].outputs, i);
    touch(p.steps[i].optional_outputs, i);
    touch(p.steps[i].stash, i);
  }
  if (p.overflow_bytes > 0) {
    buffer b;
    b.form = buffer_form::overflow;
    b.bytes = p.overflow_bytes;
    b.last_step = static_cast<std::int32_t>(p.steps.size()) - 1;
    names["overflow"] = buffer_id(p.buffers.size());
    p.buffers.push_back(b);
  }
  for (const buffer_id i : p.buffers.ids()) {
    buffer& b = p.buffers[i];
    for (buffer_id k(0); k < i; ++k) {
      const buffer& other = p.buffers[k];
      const bool meet = b.first_step <= other.last_step && other.first_step <= b.last_step &&
                        b.offset < other.offset + other.bytes && other.offset < b.offset + b.bytes;
      if (!meet) continue;
      b.offset = other.offset + other.bytes;
      k = no_id;  // look at all of them again
    }
  }
  update_sizes();
}

void test_plan::update_sizes() {
  plan_sizes& z = p.sizes;
  z = {};
  const auto live = [this](std::size_t at_step) {
    std::int64_t sum = 0;
    for (const buffer& b : p.buffers) {
      const auto now = static_cast<std::int32_t>(at_step);
      if (b.first_step <= now && now <= b.last_step) sum += b.bytes;
    }
    return sum;
  };
  for (const buffer& b : p.buffers) {
    z.planned_peak = std::max(z.planned_peak, b.offset + b.bytes);
  }
  for (const storage& s : p.network.storages) {
    if (s.bytes_per_sample == 0) z.parameter_bytes += round_up(s.fixed_bytes);
  }
  z.workspace_bytes = 4096;
  z.planned_peak_total = z.planned_peak + z.parameter_bytes + z.workspace_bytes;
  z.baseline_peak = 36032;
  z.baseline_peak_total = z.baseline_peak + z.parameter_bytes + z.workspace_bytes;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    z.max_live = std::max(z.max_live, live(i));
  }
  z.boundary = live(run_step("loss/b"));
  z.wall = 8192 + 2048;  // pool1: s and p
  z.wall_op = op_of("pool1");
  z.bound = z.wall;
}

void test_plan::swap_steps(std::size_t a, std::size_t b) {
  std::swap(p.steps[a], p.steps[b]);
}

void test_plan::erase_step(std::size_t i) {
  const auto gone = static_cast<std::int32_t>(i);
  p.steps.erase(p.steps.begin() + static_cast<std::ptrdiff_t>(i));
  for (buffer& b : p.buffers) {
    if (b.first_step > gone) --b.first_step;
    if (b.last_step >= gone && b.last_step > b.first_step) --b.last_step;
  }
}

void test_plan::duplicate_step(std::size_t i) {
  const auto copied = static_cast<std::int32_t>(i);
  const step copy = p.steps[i];
  p.steps.insert(p.steps.begin() + static_cast<std::ptrdiff_t>(i), copy);
  for (buffer& b : p.buffers) {
    if (b.first_step > copied) ++b.first_step;
    if (b.last_step >= copied) ++b.last_step;
  }
}

test_plan make_plain_plan() {
  test_plan t(policy::none);
  for (const char* name : {"s", "p", "c", "b", "k"}) {
    t.choose(name, stash_kind::raw);
  }
  t.p.alternative[t.op_of("norm/b")] = 1;
  t.p.alternative[t.op_of("pool1/b")] = 1;
  for (const char* op :
       {"conv1", "relu1", "pool1", "conv2", "norm", "conv3", "relu3", "conv4", "relu4", "dense", "loss"}) {
    t.run(op);
  }
  t.run("loss/b", {"probabilities"});
  t.run("dense/w", {"k"});
  t.run("dense/d");
  t.run("relu4/b", {"k"});
  t.run("conv4/w", {"p"});
  t.run("conv4/d");
  t.run("relu3/b", {"k"});
  t.run("conv3/w", {"b"});
  t.run("conv3/d");
  t.run("norm/b", {"c", "b"});
  t.run("conv2/w", {"p"});
  t.run("conv2/d");
  t.run("p/accumulate");
  t.run("pool1/b", {"s"});
  t.run("relu1/b", {"s"});
  t.run("conv1/w", {"images"});
  t.finish();
  return t;
}

test_plan make_lossless_plan() {
  test_plan t(policy::lossless);
  t.choose("s", stash_kind::encoded, {.kind = encoding_kind::sign_mask});
  t.choose("p", stash_kind::encoded, {.kind = encoding_kind::bitmap}, 0.75);
  t.choose("index", stash_kind::encoded, {.kind = encoding_kind::window_index, .window_taps = 4});
  t.choose("c", stash_kind::raw);
  t.choose("b", stash_kind::recompute, {.kind = encoding_kind::shape_only});
  t.choose("k", stash_kind::encoded, {.kind = encoding_kind::bitmap}, 0.5);
  t.run("conv1");
  t.run("relu1");
  t.run("pool1", {}, {"index.enc"});
  t.encode("s");
  t.run("conv2");
  t.run("norm");
  t.run("conv3");
  t.run("relu3");
  t.run("conv4");
  t.encode("p");
  t.run("relu4");
  t.run("dense");
  t.encode("k");
  t.run("loss");
  t.run("loss/b", {"probabilities"});
  t.decode("k", "k#2");
  t.run("dense/w", {"k#2"});
  t.run("dense/d");
  t.run("relu4/b", {"k#2"});
  t.decode("p", "p#2");
  t.run("conv4/w", {"p#2"});
  t.run("conv4/d");
  t.run("relu3/b", {"k#2"});
  t.recompute("b", "norm", {"c"}, "b#2");
  t.run("conv3/w", {"b#2"});
  t.run("conv3/d");
  t.run("norm/b", {"c"});
  t.run("conv2/w", {"p#2"});
  t.run("conv2/d");
  t.run("p/accumulate");
  t.run("pool1/b", {"index.enc"});
  t.run("relu1/b", {"s.enc"});
  t.run("conv1/w", {"images"});
  t.finish();
  return t;
}

test_plan make_fp8_plan() {
  test_plan t(policy::fp8);
  t.p.slot_margin = 0.04;
  const encoding fp8_cast{.kind = encoding_kind::cast, .values = value_format::fp8_e4m3};
  t.choose("s", stash_kind::encoded,
           {.kind = encoding_kind::cast,
            .values = value_format::fp8_e4m3,
            .underflow = underflow_rule::keep_nonzero});
  t.choose("p", stash_kind::encoded, fp8_cast);
  t.choose("index", stash_kind::encoded, {.kind = encoding_kind::window_index, .window_taps = 4});
  t.choose("c", stash_kind::encoded, fp8_cast);
  t.choose("b", stash_kind::recompute, {.kind = encoding_kind::sign_mask});
  t.choose("k", stash_kind::encoded,
           {.kind = encoding_kind::bitmap,
            .values = value_format::fp8_e4m3,
            .underflow = underflow_rule::keep_nonzero},
           0.5);
  t.p.alternative[t.op_of("norm/b")] = 1;
  t.p.overflow_bytes = 256;
  t.run("conv1");
  t.run("relu1");
  t.run("pool1", {}, {"index.enc"});
  t.encode("s");
  t.run("conv2");
  t.run("norm");
  t.encode("c");
  t.run("conv3");
  t.encode("b");
  t.run("relu3");
  t.run("conv4");
  t.encode("p");
  t.run("relu4");
  t.run("dense");
  t.encode("k");
  t.run("loss");
  t.run("loss/b", {"probabilities"});
  t.decode("k", "k#2");
  t.run("dense/w", {"k#2"});
  t.run("dense/d");
  t.run("relu4/b", {"k#2"});
  t.decode("p", "p#2");
  t.run("conv4/w", {"p#2"});
  t.run("conv4/d");
  t.run("relu3/b", {"k#2"});
  t.decode("c", "c#2");
  t.recompute("b", "norm", {"c#2", "b.enc"}, "c#2");
  t.run("conv3/w", {"c#2"});
  t.run("conv3/d");
  t.decode("c", "c#3");
  t.run("norm/b", {"c#3", "b.enc"});
  t.run("conv2/w", {"p#2"});
  t.run("conv2/d");
  t.run("p/accumulate");
  t.run("pool1/b", {"index.enc"});
  t.run("relu1/b", {"s.enc"});
  t.run("conv1/w", {"images"});
  t.finish();
  return t;
}

}  // namespace stash::planner::testing
