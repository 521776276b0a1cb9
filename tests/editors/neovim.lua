-- nvim --headless -u NONE -c 'luafile neovim.lua': lens, optimize, cancel, optimize, apply, write, undo, write.
-- Environment: SERVER (JSON list), FILE, CLASS. Prints one line a step; ends with 0 only after the last.

local file, class = vim.env.FILE, vim.env.CLASS
local ended = {}

local function fail(why)
  io.stderr:write(why .. "\n")
  vim.cmd("cquit 1")
end

local function wait(what, seconds, holds)
  if not vim.wait(seconds * 1000, holds, 100) then
    fail("waited for " .. what .. "; jobs ended with: " .. table.concat(ended, ", "))
  end
  print(what)
  io.stdout:write("\n")
end

local told = {}
local progress = { token = nil, text = "" }
local handlers = {
  ["window/showMessage"] = function(_, result)
    table.insert(told, result.message)
  end,
  ["$/progress"] = function(_, result)
    local value = result.value
    if value.kind == "begin" then
      progress.token = result.token
    end
    progress.text = value.message or progress.text
    if value.kind == "end" then
      table.insert(ended, value.message or "")
    end
  end,
}

vim.cmd("edit " .. vim.fn.fnameescape(file))
vim.bo.filetype = "python"
local before = vim.api.nvim_buf_get_lines(0, 0, -1, false)
local capabilities = vim.lsp.protocol.make_client_capabilities()
capabilities.window.workDoneProgress = true
capabilities.workspace.configuration = true
local id = vim.lsp.start_client({
  name = "kernel-assistant",
  cmd = vim.fn.json_decode(vim.env.SERVER),
  root_dir = vim.fn.fnamemodify(file, ":h"),
  capabilities = capabilities,
  handlers = handlers,
  settings = { kernelAssistant = vim.fn.json_decode(vim.env.SETTINGS) },
})
vim.lsp.buf_attach_client(0, id)
vim.wait(60000, function()
  return vim.lsp.buf_get_clients(0)[id] ~= nil
end)
local client = vim.lsp.get_client_by_id(id)
local document = { uri = vim.uri_from_bufnr(0) }

local function command(name)
  local answer, problem = client.request_sync("workspace/executeCommand", {
    command = "kernelAssistant." .. name,
    arguments = { { uri = document.uri, class = class } },
  }, 60000, 0)
  if problem or not answer or answer.err then
    fail(name .. ": " .. vim.inspect(problem or answer))
  end
  return answer.result
end

local function lens(text)
  local answer = client.request_sync("textDocument/codeLens", { textDocument = document }, 20000, 0)
  for _, one in ipairs(answer and answer.result or {}) do
    if one.command and one.command.title:find(text, 1, true) then
      return true
    end
  end
  return false
end

local function holds(text)
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"):find(text, 1, true) ~= nil
end

wait("lens", 60, function()
  return lens("Optimize with Kernel Assistant")
end)
command("optimize")
wait("progress", 60, function()
  return progress.token ~= nil
end)
client.notify("window/workDoneProgress/cancel", { token = progress.token })
wait("cancelled", 60, function()
  return #ended == 1
end)
command("optimize")
wait("finished", 150, function()
  return #ended == 2
end)
wait("told", 20, function()
  return #told == 2 and told[2]:find(class .. ": ", 1, true) == 1
end)
wait("result", 60, function()
  return lens("verified")
end)
local offered = client.request_sync("textDocument/codeAction", {
  textDocument = document,
  range = { start = { line = 10, character = 0 }, ["end"] = { line = 10, character = 0 } },
  context = { diagnostics = {} },
}, 20000, 0)
local apply = vim.tbl_filter(function(action)
  return action.title:find("Apply the kernels", 1, true)
end, offered.result or {})[1]
if not apply then
  fail("no action applies: " .. vim.inspect(offered))
end
command("apply")
wait("applied", 60, function()
  return holds("_kernels/load.py")
end)
vim.cmd("silent write")
command("undo")
wait("undone", 60, function()
  return not holds("_kernels/load.py")
end)
vim.cmd("silent write")
if not vim.deep_equal(before, vim.api.nvim_buf_get_lines(0, 0, -1, false)) then
  fail("undo left something behind")
end
vim.lsp.stop_client(id)
vim.cmd("quitall!")
