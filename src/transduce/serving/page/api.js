// Requests to the server, and what its errors mean. Paths are relative, so that the page works behind a proxy's prefix.

import { $, keptForTab } from "./dom.js";

export class ApiError extends Error {
  constructor(status, message, remedy = "", retryAfter = null) {
    super(message);
    this.status = status; // 0: the server was not reached
    this.remedy = remedy;
    this.retryAfter = retryAfter; // seconds
  }

  // Worth trying again without a change.
  get temporary() {
    return [0, 429, 502, 503, 504].includes(this.status);
  }
}

export const apiKey = () => keptForTab.get("key", "");

let asking = null;

// Ask for a key; resolve to whether one was given. Requests that need it at the same time share one dialog.
export function askForKey(problem = "") {
  asking ??= new Promise((resolve) => {
    const dialog = $("key-dialog");
    $("key-problem").textContent = problem;
    const cancel = () => dialog.close("");
    $("key-cancel").addEventListener("click", cancel, { once: true });
    dialog.addEventListener(
      "close",
      () => {
        $("key-cancel").removeEventListener("click", cancel);
        const given = dialog.returnValue === "ok" && $("key").value.trim() !== "";
        if (given) keptForTab.set("key", $("key").value.trim());
        $("key").value = "";
        dialog.returnValue = "";
        asking = null;
        resolve(given);
      },
      { once: true },
    );
    dialog.showModal();
  });
  return asking;
}

async function failure(response) {
  const said = await response.json().catch(() => ({}));
  const { message = "", remedy = "" } = typeof said?.error === "object" && said.error ? said.error : {};
  const seconds = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, String(message), String(remedy), seconds > 0 ? seconds : null);
}

// Send a request and return the response; `body` is FormData or an object that is sent as JSON.
export async function send(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const key = apiKey();
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    if (body && !(body instanceof FormData)) headers["Content-Type"] = "application/json";
    let response;
    try {
      const sent = body && !(body instanceof FormData) ? JSON.stringify(body) : body;
      response = await fetch(path, { method, headers, body: sent, signal, cache: "no-store" });
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new ApiError(0, "");
    }
    if (response.ok) return response;
    const error = await failure(response);
    // A request that was replaced while it waited for the dialog does not ask again.
    if (![401, 403].includes(error.status)) throw error;
    if (apiKey() === key) {
      keptForTab.set("key", null);
      if (!(await askForKey(error.message))) throw error;
    }
    signal?.throwIfAborted();
  }
}

export async function call(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}
