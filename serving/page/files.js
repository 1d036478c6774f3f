// Images from files: chosen, dropped or pasted.
import { find } from "./dom.js";
import { Refused } from "./endpoint.js";

// Returns a copy that stays as it is if the file on disk changes.
export async function inMemory(file) {
  try {
    return new File([await file.arrayBuffer()], file.name, { type: file.type });
  } catch {
    throw new Refused(`${file.name} cannot be read. Has it been moved or changed, or is it a folder?`);
  }
}

// Calls `take` with the files.
export function onFiles(take) {
  const some = (files) => { if (files.length) take([...files]); };
  find("pick").addEventListener("click", () => find("file").click());
  for (const input of [find("file"), find("capture")]) {
    input.addEventListener("change", () => {
      some(input.files);
      // Allows choosing the same file again.
      input.value = "";
    });
  }
  document.addEventListener("paste", (event) => some(event.clipboardData.files));
  // A file dropped next to the canvas would replace the page.
  for (const kind of ["dragenter", "dragover"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      find("image").classList.add("over");
    });
  }
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) find("image").classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    find("image").classList.remove("over");
    some(event.dataTransfer.files);
  });
}
