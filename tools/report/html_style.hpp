// SPDX-License-Identifier: Apache-2.0
#pragma once
/// \file
/// What the HTML pages look like, and their script.

#include <string_view>

namespace stash::tools {

// Colours that people with the usual forms of colour blindness distinguish (Okabe and Ito); ground and text
// follow the reader's setting.
inline constexpr std::string_view html_styles = R"css(
:root { color-scheme: light dark; --ground: #ffffff; --raised: #f4f5f7; --text: #1b1f24; --faint: #57606a;
  --line: #d5d9de; --before: #57606a; --after: #0072b2; --fill: #0072b226; --base: #57606a33; --budget: #b34700;
  --host: #8f3f71; --forward: #0072b2; --backward: #56b4e9; --encode: #e69f00; --decode: #d55e00;
  --recompute: #009e73; --copy: #cc79a7; --wait: #57606a66; --update: #8c959f; --bound: #00664a; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --raised: #1e2329; --text: #e6e9ec;
  --faint: #a3acb6; --line: #343b43; --before: #a3acb6; --after: #56b4e9; --fill: #56b4e92e; --base: #a3acb633;
  --budget: #ff9d5c; --host: #e3a3c6; --forward: #3d8fd1; --backward: #8fd0f5; --wait: #a3acb666;
  --bound: #4fd0a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 68rem; background: var(--ground);
  color: var(--text); font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 48rem; }
.lead, figcaption, .note { color: var(--faint); }
.note, figcaption { font-size: .875rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; margin: 1.25rem 0;
  padding: 0; list-style: none; }
.tiles li { background: var(--raised); border-radius: .5rem; padding: .75rem 1rem; }
.tiles b { display: block; font-size: 1.45rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--faint); font-size: .875rem; }
figure { margin: .5rem 0 0; }
figure .scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 40rem; height: auto; }
svg text { fill: var(--faint); font-size: 12px; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .5rem 0 0; padding: 0; list-style: none;
  font-size: .875rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; border-radius: 2px;
  vertical-align: -.05rem; }
.grid { stroke: var(--line); } .axis { stroke: var(--faint); }
path, .level { fill: none; stroke-width: 1.75; }
.before { stroke: var(--before); } .after { stroke: var(--after); } .host { stroke: var(--host); }
.bound { stroke: var(--bound); } .greedy { stroke: var(--budget); }
path.area { fill: var(--fill); stroke: none; } rect.base { fill: var(--base); }
.budget { stroke: var(--budget); stroke-dasharray: 6 4; } text.budget { fill: var(--budget); stroke: none; }
path.before { stroke-dasharray: 2 2; } path.greedy { stroke-dasharray: 5 3; } path.bound { stroke-dasharray: 2 3; }
rect.forward { fill: var(--forward); } rect.backward { fill: var(--backward); } rect.encode { fill: var(--encode); }
rect.decode { fill: var(--decode); } rect.recompute { fill: var(--recompute); } rect.copy { fill: var(--copy); }
rect.wait { fill: var(--wait); } rect.update { fill: var(--update); }
circle.after { fill: var(--after); } circle.bound { fill: var(--ground); stroke-width: 1.5; }
i.before { background: var(--before); } i.after { background: var(--after); } i.base { background: var(--base); }
i.host { background: var(--host); } i.budget, i.greedy { background: var(--budget); }
i.bound { background: var(--bound); }
i.forward { background: var(--forward); } i.backward { background: var(--backward); }
i.encode { background: var(--encode); } i.decode { background: var(--decode); }
i.recompute { background: var(--recompute); } i.copy { background: var(--copy); }
i.wait { background: var(--wait); } i.update { background: var(--update); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; margin-top: .5rem; }
caption { text-align: left; color: var(--faint); padding-bottom: .35rem; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-weight: 400; }
thead th { font-weight: 600; white-space: nowrap; }
tbody th { overflow-wrap: anywhere; min-width: 9rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
meter { width: 4.5rem; height: .8rem; }
code { font-size: .95em; overflow-wrap: anywhere; }
#tip { position: fixed; z-index: 1; pointer-events: none; max-width: 24rem; padding: .3rem .6rem;
  border-radius: .35rem; background: var(--text); color: var(--ground); font-size: .8rem; overflow-wrap: anywhere; }
@media print { body { max-width: none; } }
)css";

// Shows a mark's title at once, next to the pointer. Without it browsers show titles after a while.
inline constexpr std::string_view html_script = R"js(
const tip = document.getElementById("tip");
document.addEventListener("pointermove", event => {
  const mark = event.target.closest("svg .mark");
  tip.hidden = !mark;
  if (!mark) return;
  const title = mark.querySelector("title");
  if (title) {
    mark.dataset.tip = title.textContent;
    title.remove();
  }
  tip.textContent = mark.dataset.tip;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 10) + "px";
});
)js";

}  // namespace stash::tools
