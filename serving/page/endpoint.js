// Sends requests to the endpoint, with the key if it requires one.
export class Refused extends Error {
  constructor(message, status = 0, after = 0) {
    super(message);
    this.status = status;
    this.after = after; // Seconds until a retry; 0 is never.
  }
}

const form = document.getElementById("key");

export async function ask(path, options = {}) {
  const key = sessionStorage.getItem("key");
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...options.headers, ...(key && { "X-API-Key": key }) } });
  } catch {
    throw new Refused("The endpoint does not answer. Is it still running?", 0, 2);
  }
  const body = await answer.json().catch(() => ({}));
  if (answer.status === 401) {
    const visible = !form.hidden;
    form.hidden = false;
    if (!visible) form.querySelector("input").focus();
    throw new Refused(key ? "This key is not accepted." : "", 401);
  }
  form.hidden = true;
  const after = answer.status === 503 ? Number(answer.headers.get("Retry-After")) || 1 : 0;
  if (!answer.ok) throw new Refused(body.error ?? `The endpoint answered ${answer.status}.`, answer.status, after);
  return body;
}

// Calls back when the user has entered a key.
export function onKey(callback) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const input = form.querySelector("input");
    sessionStorage.setItem("key", input.value);
    input.value = "";
    callback();
  });
}
