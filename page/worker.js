// SPDX-License-Identifier: Apache-2.0
// Copyright the Tidemark authors
//
// Answers messages {id, do} with {id, answer}.

onmessage = (message) => postMessage({ id: message.data.id, answer: null });
