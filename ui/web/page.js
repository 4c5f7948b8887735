"use strict";
// What pages do without the server: keys, the theme, rows of the list on demand, and the address that follows the list.
const barnabas = (() => {
  const folder = new URL("..", document.currentScript.src).pathname;
  const address = () => new URLSearchParams(location.search);
  const input = () => document.getElementById("filter");
  let list = null; // the AG Grid of exchanges
  let table = null; // it, or that of another page
  let follow = false;
  let typing = false; // the filter, since the last Enter

  function remember(name, value, push) {
    const now = address();
    if ((now.get(name) ?? "") === value) return;
    value ? now.set(name, value) : now.delete(name);
    const text = now.toString();
    history[push ? "pushState" : "replaceState"](history.state, "", location.pathname + (text ? `?${text}` : ""));
  }
  window.addEventListener("popstate", () => location.reload());

  // --- tables -----------------------------------------------------------------------------------------------
  const column = {
    resizable: true, sortable: true, sortingOrder: ["asc", "desc", null],
    cellClass: (p) => (p.data ? p.data[`${p.colDef.field}_role`] ?? "" : ""),
    tooltipValueGetter: (p) => p.value,
  };
  // of the list of exchanges, whose cells come and go by the thousand: only the result has a colour
  const plainColumn = { ...column, cellClass: undefined };
  const resultClass = column.cellClass;
  const rowClass = (p) => (p.data ? [p.data.tint ? `tint-${p.data.tint}` : "", p.data.mark === undefined ? "" : "marked"].filter(Boolean) : "");
  const target = (data) => (data ? data.href ?? (data.row ? exchange(data.row) : "") : "");
  function exchange(row) {
    const kept = address();
    const wanted = new URLSearchParams();
    for (const name of ["filter", "order"]) if (kept.get(name)) wanted.set(name, kept.get(name));
    return `${folder}exchanges/${row}` + (wanted.size ? `?${wanted}` : "");
  }
  function open(p) {
    const where = target(p.data);
    if (!where || (getSelection() && getSelection().toString())) return; // the mouse has marked text
    p.event && (p.event.ctrlKey || p.event.metaKey) ? window.open(where) : location.assign(where);
  }
  // the order of a table in the address; the list of exchanges has its rows sorted by the server, and keeps it in `rows`
  function sorted(p) {
    const by = p.api.getColumnState().find((each) => each.sort);
    remember("order", by ? (by.sort === "desc" ? "-" : "") + by.colId : "", false);
  }
  function ordered(p) {
    table = p.api;
    const first = innerWidth < 600 ? p.context.first : [];
    if (first.length) p.api.moveColumns(first, 0);
    const by = address().get("order");
    if (by) p.api.applyColumnState({ state: [{ colId: by.replace(/^-/, ""), sort: by.startsWith("-") ? "desc" : "asc" }] });
  }
  function key(p) {
    if (p.event.key === "Enter" && target(p.data)) location.assign(target(p.data));
  }

  // --- the list of exchanges --------------------------------------------------------------------------------
  async function ask(start, stop) {
    const wanted = new URLSearchParams({ filter: address().get("filter") ?? "", order: address().get("order") ?? "", start, stop });
    if (list && list.getColumn("Info")?.isVisible()) wanted.set("info", "1"); // messages are decoded for it
    const answer = await fetch(`${folder}data/rows?${wanted}`);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }
  const rows = {
    getRows: async (p) => {
      const sorted = p.sortModel[0];
      remember("order", sorted ? (sorted.sort === "desc" ? "-" : "") + sorted.colId : "", false);
      try {
        const found = await ask(p.startRow, p.endRow);
        p.successCallback(found.rows, found.total);
        found.total ? list?.hideOverlay() : list?.showNoRowsOverlay();
        if (follow && found.total && list?.getFirstDisplayedRowIndex() <= 0) list.ensureIndexVisible(found.total - 1, "bottom"); // the first rows
      } catch (error) {
        p.failCallback();
      }
    },
  };
  function ready(p) {
    list = table = p.api;
    const chosen = address().get("columns");
    if (chosen) columns(chosen.split(","), false);
    else if (innerWidth < 1400 && innerWidth >= 600) list.setColumnsVisible(["Info"], false);
    else if (innerWidth < 600) {
      columns(["No", "Client", "API", "Result"], false);
      list.setColumnWidths([{ key: "No", newWidth: 58 }, { key: "Client", newWidth: 92 }, { key: "API", newWidth: 112 }]);
    }
    if (input()) input().value = address().get("filter") ?? "";
  }
  function columns(names, kept) {
    const all = list.getColumns().map((c) => c.getColId());
    list.setColumnsVisible(all.filter((name) => !names.includes(name)), false);
    const asked = list.getColumn("Info")?.isVisible();
    list.setColumnsVisible(names, true);
    if (kept && !asked && names.includes("Info")) list.purgeInfiniteCache();
    if (kept) remember("columns", names.join(","), false);
  }
  function filter(text, done) {
    const other = (address().get("filter") ?? "") !== text;
    remember("filter", text, !typing); // one step of the history for all that is typed until Enter
    typing = !done;
    if (list && other) list.purgeInfiniteCache();
  }
  function grew(total, live) {
    if (!list) return;
    const before = list.getDisplayedRowCount();
    if (total !== before) list.setRowCount(total, true);
    if (total) list.hideOverlay();
    if (follow && total) list.ensureIndexVisible(total - 1, "bottom");
    if (live || list.getLastDisplayedRowIndex() >= before - 1) fill();
  }
  // New rows, and answers that have come: those in sight, ahead of the blocks that the table asks for.
  let filling = false;
  async function fill() {
    if (filling) return;
    filling = true;
    try {
      // the table has not scrolled to its end yet where it follows
      const total = list.getDisplayedRowCount();
      const first = Math.max(follow ? total - 60 : list.getFirstDisplayedRowIndex(), 0);
      const found = await ask(first, follow ? total : list.getLastDisplayedRowIndex() + 1);
      found.rows.forEach((row, at) => list.getDisplayedRowAtIndex(first + at)?.setData(row));
    } catch (error) {
      console.info(error.message); // asked again when there is more
    } finally {
      filling = false;
    }
  }
  function following(on) {
    follow = on;
    for (const each of document.querySelectorAll(".follow")) each.classList.toggle("on", on);
    if (on && list && list.getDisplayedRowCount()) list.ensureIndexVisible(list.getDisplayedRowCount() - 1, "bottom");
  }
  function type(text, at) {
    const line = input();
    line.value = text;
    line.focus();
    line.setSelectionRange(at, at);
  }
  function move(step) {
    const here = table.getFocusedCell();
    const row = Math.max(0, Math.min((here ? here.rowIndex : -1) + step, table.getDisplayedRowCount() - 1));
    if (!table.getDisplayedRowCount()) return;
    table.ensureIndexVisible(row);
    table.setFocusedCell(row, here ? here.column : table.getAllDisplayedColumns()[0]);
    following(false);
  }
  function narrow(hide) {
    const here = list && list.getFocusedCell();
    const node = here && list.getDisplayedRowAtIndex(here.rowIndex);
    if (node && node.data) emitEvent("narrow", { row: node.data.row, column: here.column.getColId(), hide });
  }

  // --- fields and bytes -------------------------------------------------------------------------------------
  const lines = () => [...document.querySelectorAll("[data-field]")].filter((each) => each.offsetParent !== null);
  function choose(line, told) {
    for (const each of document.querySelectorAll(".chosen")) each.classList.remove("chosen");
    if (!line) return;
    line.classList.add("chosen");
    if (told) emitEvent("field", { side: line.closest("[data-side]").dataset.side, at: Number(line.dataset.field) });
  }
  function show(side, at) {
    const line = document.querySelector(`[data-side="${side}"] [data-field="${at}"]`);
    if (!line) return;
    for (let around = line.parentElement; around; around = around.parentElement) if (around.tagName === "DETAILS") around.open = true;
    choose(line, false);
    line.scrollIntoView({ block: "nearest" });
  }
  function step(by) {
    const all = lines();
    const at = all.findIndex((each) => each.classList.contains("chosen"));
    const next = all[Math.max(0, Math.min(at + by, all.length - 1))];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    choose(next, true);
  }

  // --- keys and clicks --------------------------------------------------------------------------------------
  const say = (words) => emitEvent("say", { words });
  const scripts = {
    theme: () => {
      const dark = document.body.classList.contains("body--dark");
      document.cookie = `barnabas-theme=${dark ? "light" : "dark"}; path=${folder}; samesite=strict; max-age=31536000`;
      location.reload();
    },
    keys: () => {
      const words = [...document.querySelectorAll("[data-key]")].map((each) => [each.dataset.key, each.title || each.innerText.trim()]);
      const box = document.createElement("dialog");
      box.className = "keys";
      const body = document.createElement("table");
      for (const [name, what] of [...words, ["j k", "down, up"], ["Enter", "open"], ["g G", "top, end"], ["= !", "only, or without, the value of the cell (list)"]]) {
        const row = body.insertRow();
        row.insertCell().textContent = name;
        row.insertCell().textContent = what.replace(/\s+/g, " ");
      }
      box.append(body);
      box.addEventListener("click", () => box.close());
      box.addEventListener("close", () => box.remove());
      document.body.append(box);
      box.showModal();
    },
    follow: () => following(!follow),
    filter: () => input() && input().focus(),
    back: () => history.back(),
    // without HTTPS, only pages of the own machine may use the clipboard
    link: () => (navigator.clipboard ? navigator.clipboard.writeText(location.href).then(() => "Copied", () => "") : Promise.resolve(""))
      .then((done) => (done ? say(done) : prompt("The address of this page:", location.href))),
  };
  document.addEventListener("click", (event) => {
    const at = event.target.closest && event.target.closest("[data-script]");
    if (at) scripts[at.dataset.script]();
    const line = event.target.closest && event.target.closest("[data-field]");
    const marked = Boolean(getSelection()?.toString());
    if (line && !marked) choose(line, true);
    const byte = event.target.closest && event.target.closest("[data-byte]");
    if (byte && !marked) emitEvent("byte", { at: Number(byte.dataset.byte) });
  });
  document.addEventListener("toggle", (event) => {
    const later = event.target.dataset && event.target.dataset.later;
    if (later !== undefined && event.target.open) emitEvent("later", { side: event.target.closest("[data-side]").dataset.side, at: Number(later) });
  }, true);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open], .q-dialog")) return;
    const inside = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;
    if (inside) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const found = [...document.querySelectorAll("[data-key]")].find((each) => each.dataset.key === event.key && each.offsetParent !== null);
    if (found) found.click();
    else if (event.key === "j" || event.key === "k") table ? move(event.key === "j" ? 1 : -1) : step(event.key === "j" ? 1 : -1);
    else if (event.key === "ArrowDown" && table && !table.getFocusedCell()) move(1);
    else if ((event.key === "=" || event.key === "!") && list) narrow(event.key === "!");
    else if (event.key === "G" && table?.getDisplayedRowCount()) table.ensureIndexVisible(table.getDisplayedRowCount() - 1);
    else if (event.key === "g" && table?.getDisplayedRowCount()) table.ensureIndexVisible(0);
    else return;
    event.preventDefault();
  });
  // numbers of an axis: 700k
  function amount(value) {
    const at = [1e9, 1e6, 1e3].findIndex((each) => Math.abs(value) >= each);
    return at < 0 ? String(value) : `${+(value / [1e9, 1e6, 1e3][at]).toPrecision(3)}${"GMk"[at]}`;
  }
  // names of a legend
  const short = (name) => (name.length > 32 ? `${name.slice(0, 31)}…` : name);
  // a narrow window does not show all of the navigation
  const here = () => document.querySelector("nav.views .here")?.scrollIntoView({ inline: "center", block: "nearest" });
  return { here, amount, short, column, plainColumn, resultClass, rowClass, open, key, sorted, ordered, rows, ready, columns, filter, grew, following, type, choose, show, remember };
})();
