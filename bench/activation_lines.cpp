// SPDX-License-Identifier: Apache-2.0
#include "bench/activation_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bench/compressors.hpp"
#include "bench/timed_state.hpp"
#include "stash/error.hpp"

namespace stash::bench {
namespace {

using map_list = std::vector<std::shared_ptr<activation>>;

enum class direction : std::uint8_t { encode, decode };

// A map in its compressed form, with memory to decompress it into.
struct compressed_map {
  compressed_map(const compressor& with, const activation& input)
      : back(input.values.view().dims), memory(with.bound({input.values.values(), input.dims})) {
    bytes = with.compress({input.values.values(), input.dims}, {memory.data(), memory.size()});
    with.decompress({memory.data(), bytes}, {back.values(), input.dims});
    if (with.lossless &&
        !std::ranges::equal(std::as_bytes(back.values()), std::as_bytes(input.values.values())))
      throw error(errc::internal,
                  fmt::format("{}: {}: not the values that were compressed", with.name, input.name));
  }

  tensor back;
  page_buffer memory;
  std::size_t bytes = 0;
};

std::int64_t dense_bytes(const map_list& maps) {
  std::int64_t sum = 0;
  for (const auto& map : maps)
    sum += map->values.bytes();
  return sum;
}

prepared_call prepare(const compressor& with, direction way, const map_list& maps) {
  auto forms = std::make_shared<std::vector<compressed_map>>();
  prepared_call call;
  for (const auto& map : maps) {
    forms->emplace_back(with, *map);
    call.encoded_bytes += static_cast<std::int64_t>(forms->back().bytes);
  }
  call.moved_bytes = dense_bytes(maps) + call.encoded_bytes;
  call.run = [=] {
    for (std::size_t i = 0; i < maps.size(); ++i) {
      compressed_map& form = (*forms)[i];
      if (way == direction::encode) {
        form.bytes = with.compress({maps[i]->values.values(), maps[i]->dims},
                                   {form.memory.data(), form.memory.size()});
      } else {
        with.decompress({form.memory.data(), form.bytes}, {form.back.values(), maps[i]->dims});
      }
    }
  };
  return call;
}

prepared_call prepare(const encoding& with, direction way, const map_list& maps) {
  struct encoded_map {
    tensor back;
    encoded form;
  };
  auto forms = std::make_shared<std::vector<encoded_map>>();
  prepared_call call;
  forms->reserve(maps.size());
  for (const auto& map : maps) {
    forms->push_back({tensor(map->values.view().dims), encoded(with, map->values, {})});
    call.encoded_bytes += forms->back().form.bytes();
  }
  call.moved_bytes = dense_bytes(maps) + call.encoded_bytes;
  call.run = [=] {
    for (std::size_t i = 0; i < maps.size(); ++i) {
      encoded_map& map = (*forms)[i];
      if (way == direction::encode) {
        encode(with, maps[i]->values.read(), map.form.write(), {}, {});
      } else {
        decode({with, map.back.view().type, map.back.view().dims, map.form.read()}, map.back.view(), {}, {});
      }
    }
  };
  return call;
}

// What a plan does in the forward pass: each map in the form that its readers need, a joint op's code while
// the map is pooled. What is kept as it is, or not at all, costs no time.
prepared_call prepare_kept(const map_list& maps) {
  struct kept_map {
    encoded form;
    std::optional<tensor> pooled;
  };
  auto forms = std::make_shared<std::vector<kept_map>>();
  prepared_call call;
  forms->reserve(maps.size());
  const auto is_written = [](const encoding& e) {
    return e.kind != encoding_kind::raw && e.kind != encoding_kind::shape_only;
  };
  for (const auto& map : maps) {
    const encoding& e = *map->kept;
    if (map->pooled_dims.empty()) {
      forms->push_back({encoded(e, map->values, {}), {}});
    } else {
      tensor pooled{shape(std::span<const std::int64_t>(map->pooled_dims))};
      const std::size_t bytes = encoded_bytes_bound(e, dtype::f32, pooled.elements());
      call.moved_bytes += pooled.bytes();
      forms->push_back({encoded(e, bytes), std::move(pooled)});
    }
    const std::int64_t bytes = forms->back().form.bytes();
    call.encoded_bytes += bytes;
    if (is_written(e)) call.moved_bytes += map->values.bytes() + bytes;
  }
  call.run = [=] {
    for (std::size_t i = 0; i < maps.size(); ++i) {
      const activation& map = *maps[i];
      kept_map& to = (*forms)[i];
      if (to.pooled) {
        const bool has_sign = map.kept->kind == encoding_kind::relu_pool;
        const encoded_view form = to.form.write();
        relu_max_pool_forward(map.values.read(), to.pooled->view(), map.pooling,
                              has_sign ? form : encoded_view{}, has_sign ? encoded_view{} : form,
                              framework_rule::tensorflow, {});
      } else if (is_written(*map.kept)) {
        encode(*map.kept, map.values.read(), to.form.write(), {}, {});
      }
    }
  };
  return call;
}

template <class Method>
void register_method(const std::string& where, const std::string& name, const Method& with,
                     const compressor& rival, const map_list& maps) {
  for (const direction way : {direction::encode, direction::decode}) {
    const char* const verb = way == direction::encode ? "encode" : "decode";
    register_work(fmt::format("activations/{}/{}/{}", where, verb, name), [=] {
      return timed_work{
          prepare(with, way, maps), dense_bytes(maps), {"lz4_speedup", prepare(rival, way, maps).run}};
    });
  }
}

void register_maps(const std::string& where, const map_list& maps) {
  const std::vector<compressor> general = compressors();
  for (const char* const name : {"bitmap", "csr", "bitmap_fp16", "bitmap_fp8", "fp16", "fp8", "mxfp8_e4m3"}) {
    encoding e = parse_encoding(name);
    if (e.values != value_format::source) e.underflow = underflow_rule::keep_nonzero;
    register_method(where, name, e, general.front(), maps);
  }
  for (const compressor& c : general)
    register_method(where, c.name, c, general.front(), maps);
  if (!std::ranges::all_of(maps, [](const auto& map) { return map->kept.has_value(); })) return;
  register_work(fmt::format("activations/{}/encode/kept", where), [=, rival = general.front()] {
    return timed_work{
        prepare_kept(maps), dense_bytes(maps), {"lz4_speedup", prepare(rival, direction::encode, maps).run}};
  });
}

}  // namespace

void register_activations(std::vector<network_activations> networks, bool by_layer) {
  for (network_activations& n : networks) {
    map_list maps;
    maps.reserve(n.maps.size());
    for (activation& map : n.maps)
      maps.push_back(std::make_shared<activation>(std::move(map)));
    register_maps(n.network, maps);
    if (!by_layer) continue;
    for (const auto& map : maps)
      register_maps(fmt::format("{}/{}", n.network, map->name), {map});
  }
}

}  // namespace stash::bench
