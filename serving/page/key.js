// The key of the endpoint, if it requires one: the user enters it, and it stays in this tab.
import { find } from "./dom.js";

const form = find("key");
const input = find("secret");

export const currentKey = () => sessionStorage.getItem("key") ?? "";

export const hasKey = () => Boolean(currentKey());

export const canBeSent = (key) => !/[\0-\x1f\x7f]/.test(key);

// The endpoint reads the key as UTF-8, and `fetch` sends each character of a header as one byte.
export const keyHeader = (key) => (key ? { "X-API-Key": String.fromCharCode(...new TextEncoder().encode(key)) } : {});

export function showKeyForm(shown) {
  const appears = shown && form.hidden;
  form.hidden = !shown;
  if (appears) input.focus();
}

// The first listener: all others find the key stored.
form.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("key", input.value.trim());
  input.value = "";
});

// Calls back when the user has entered a key.
export const onKey = (callback) => form.addEventListener("submit", callback);

export const nextKey = () => new Promise((done) => form.addEventListener("submit", done, { once: true }));
