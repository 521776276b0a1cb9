"""`workspace/willRenameFiles`: renames or moves the kernels together with their file."""

from __future__ import annotations

from lsprotocol import types

from kernel_assistant.session.threads import in_thread
from kernel_assistant_lsp.context import Context
from kernel_assistant_lsp.text.renames import renamed_packages

FILTER = types.FileOperationFilter(
    scheme="file", pattern=types.FileOperationPattern(glob="**/*.py", matches=types.FileOperationPatternKind.File)
)


def register(context: Context) -> None:
    @context.server.feature(types.WORKSPACE_WILL_RENAME_FILES, types.FileOperationRegistrationOptions(filters=[FILTER]))
    async def will_rename_files(params: types.RenameFilesParams) -> types.WorkspaceEdit | None:
        if not context.abilities.renames_files:
            return None
        names = [(one.old_uri, one.new_uri) for one in params.files]
        renames = await in_thread(lambda: renamed_packages(names))
        return types.WorkspaceEdit(document_changes=list(renames)) if renames else None
