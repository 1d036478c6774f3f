// The list of served models, which is asked for again and again: new versions appear without a reload.
import { find, make } from "./dom.js";
import { ask } from "./endpoint.js";
import { report } from "./problems.js";
import { oneAtATime } from "./turns.js";

const POLL = 5000; // Milliseconds from an answer to the next request,
const SOON = 500; // and while the endpoint is still loading models.

// Calls `update` with each list, and with the states of all versions; returns a function that asks at once.
export function followModels(update) {
  let timer = 0;
  let loading = false;

  async function list() {
    loading = false;
    const [models, all] = await Promise.all([ask("models"), ask("v1/models")]);
    loading = all.loading;
    showRefused(all);
    update(models, all);
    return loading && !models.length ? "The models are being loaded." : "";
  }

  const refresh = oneAtATime(async () => {
    clearTimeout(timer);
    try {
      await report("models", list);
    } finally {
      timer = setTimeout(poll, loading ? SOON : POLL);
    }
  });

  function poll() {
    if (!document.hidden && find("key").hidden) refresh();
    else timer = setTimeout(poll, POLL);
  }

  refresh();
  return refresh;
}

// Refused versions and unreadable folders, each with the reason.
function showRefused({ statuses, wrong }) {
  const versions = Object.entries(statuses).flatMap(([name, all]) =>
    all.filter((one) => one.state === "END").map((one) => `${name}, version ${one.version}: ${one.status.error_message}`));
  const lines = [...Object.values(wrong), ...versions];
  const [summary, list] = find("refused").children;
  find("refused").hidden = !lines.length;
  const folders = Object.keys(wrong).length ? "Some model folders cannot be read" : "";
  const refused = versions.length ? `${versions.length} refused version${versions.length > 1 ? "s" : ""}` : "";
  summary.textContent = [folders, refused].filter(Boolean).join("; ");
  list.replaceChildren(...lines.map((line) => make("li", { textContent: line })));
}
